// SPDX-License-Identifier: Apache-2.0
// The forward pass of a head of EAGLE beside its model's. It reads pairs: what the model, or the
// head itself, found at one token (its feature), and the token that follows. With e the embedding
// of that token in the model's table, and Attention and Mlp those of a Llama layer:
//
// clang-format off
//   version 1   h = fc [e; feature] + bias      x = h                          SafeAILab/EAGLE/eagle/model/cnets1.py
//   version 3   h = fc feature, or a feature    x = [Norm(e); HiddenNorm(h)]   SafeAILab/EAGLE/eagle/model/cnets.py
//               of its own as it is
//   both        h = h + Attention(x);  state = h + Mlp(PostNorm(h))
//   logits      version 1: the model's lm_head of state      version 3: its own of FinalNorm(state)
// clang-format on
//
// The state is the feature of the pair behind it. Features of the model are of version 1 the states
// that its lm_head reads, of version 3 the residuals that enter three of its layers. In the model's
// dtype, sums and residuals in float32. On the CPU.
//
// Threads: one call at a time.
#pragma once

#include <memory>
#include <span>

#include "model/eagle_head.h"
#include "model/engine.h"
#include "ops/attention.h"
#include "ops/backend.h"
#include "tensor/stream.h"

namespace inflight::model {

// A step's pairs; at most `max_num_tokens` of Create.
struct EagleBatch {
  TensorView ids;  // [num_tokens] int32: the token of each pair
  TensorView
      features;     // [any, feature_width] of a float dtype; its own: [any, hidden_size] float32
  TensorView rows;  // [num_tokens] int32: which of `features` is the pair's
  bool are_own = false;  // of the head
  ops::PagedBatch paged;
  ops::SlidingWindow sliding;
};

// What the head uses of its model, where no engine of this process has all of it.
class EagleTarget {
 public:
  virtual ~EagleTarget() = default;
  virtual Status Embed(const TensorView& ids, const TensorView& y, Stream& stream) = 0;
  virtual Status HeadLogits(const TensorView& x, const TensorView& logits, Stream& stream) = 0;
};

class EagleDecoder {
 public:
  // `engine` is the model that the head is of, whose sequences have at most `max_seq_len` tokens;
  // `ops` fit KernelShape(head->config.layer). `target`, which outlives this, is for an engine that
  // holds a part of the model.
  static Result<std::unique_ptr<EagleDecoder>> Create(std::shared_ptr<const EagleHead> head,
                                                      std::shared_ptr<const Engine> engine,
                                                      ops::OpTable ops, Device& device,
                                                      int max_seq_len, int max_num_tokens,
                                                      int max_logits,
                                                      EagleTarget* target = nullptr);
  ~EagleDecoder();

  // What Create takes, of a model whose sequences have at most `max_seq_len` tokens; without a
  // `target` where an engine has all of that.
  static uint64_t Bytes(const EagleConfig& config, const ModelConfig& model, int max_seq_len,
                        int max_num_tokens, int max_logits);

  // Writes keys and values of the pairs into layer 0 of `kv`. Returns the states [num_tokens,
  // hidden_size] float32, valid until the next Forward; `batch.features` may be those of the last.
  Result<TensorView> Forward(const EagleBatch& batch, const ops::KvCacheView& kv, Stream& stream);

  // The keys and values alone, which depend on nothing but the pair. Of `batch.paged` positions and
  // slot_mapping are read.
  Status WriteKv(const EagleBatch& batch, const ops::KvCacheView& kv, Stream& stream);

  // Logits [n, draft_vocab_size] float32 behind `rows` [n] int32, n <= max_logits, of `states`
  // [any, hidden_size] float32. Valid until the next call.
  Result<TensorView> Logits(const TensorView& states, const TensorView& rows, Stream& stream);

  const EagleConfig& config() const { return head_->config; }
  // [draft_vocab_size] the model's tokens of the head's; empty: they are the same.
  std::span<const int32_t> token_ids() const { return head_->weights.token_ids; }

 private:
  struct Workspace;
  EagleDecoder() = default;
  static uint64_t LayOut(const EagleConfig& config, const ModelConfig& model, int max_seq_len,
                         int max_num_tokens, int max_logits, std::byte* base, Workspace& out);
  Status Enter(const EagleBatch& batch, const Workspace& w, Stream& stream) const;
  TensorView QueriesOf(int64_t num_tokens) const;
  ops::Norm NormOf(const TensorView& weight) const;

  std::shared_ptr<const EagleHead> head_;
  std::shared_ptr<const Engine> engine_;
  EagleTarget* target_ = nullptr;  // null: the engine has all of it
  ops::OpTable ops_;
  Buffer buffer_;
  std::unique_ptr<Workspace> workspace_;
  ops::Rope rope_;
  float attention_scale_ = 1;
};

}  // namespace inflight::model
