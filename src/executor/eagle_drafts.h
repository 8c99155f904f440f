// SPDX-License-Identifier: Apache-2.0
// Trees of drafts by a head of EAGLE (docs/reference/speculation.md, "EAGLE"): a node of choice c
// is the c-th best token behind its parent, by the head's state there.
//
// The head follows every sequence: behind each step it computes the pair (feature of a token, the
// token after it) of each token that the step settled, whose key and value stand at the token's
// place in blocks of the same numbers as the model's. So they are reused, paused and moved to the
// host as the model's are. A pair is written once its next token is known; of a block that another
// sequence goes on from, the last pair is that of the first one's next token.
//
// Threads: one thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "executor/kv_storage.h"
#include "executor/memory_plan.h"
#include "executor/rank_leader.h"
#include "executor/tree_source.h"
#include "model/eagle_decoder.h"
#include "ops/backend.h"
#include "tensor/buffer.h"

namespace inflight::executor {

class EagleDrafts : public TreeSource {
 public:
  ~EagleDrafts() override;

  // Of a plan that has a tree; `ops` fit the head's layer. Of an engine that holds a part of the
  // model `leader` tells the others what the head uses of theirs; it outlives this.
  static Result<std::unique_ptr<EagleDrafts>> Create(std::shared_ptr<const model::EagleHead> head,
                                                     std::shared_ptr<const model::Engine> engine,
                                                     Device& device, const MemoryPlan& plan,
                                                     const ops::OpTable& ops,
                                                     RankLeader* leader = nullptr);

  // What Create takes beside keys and values.
  static uint64_t Bytes(const model::EagleConfig& config, const model::ModelConfig& model,
                        int max_seq_len, int max_num_tokens, int max_slots);

  const decoding::DraftTree& tree() const override { return tree_; }
  Status Draft(std::span<const Ask> asks, model::Decoder& decoder,
               inflight::Stream& stream) override;
  const model::KeptResiduals* residuals() const override {
    return kept_.layers.empty() ? nullptr : &kept_;
  }
  Status Follow(std::span<const Step> steps, model::Decoder& decoder,
                inflight::Stream& stream) override;
  void CopyBlocks(std::span<const scheduler::HostBlockCopy> copies, CpuPool& pool) override {
    kv_.CopyBlocks(copies, pool);
  }

 private:
  explicit EagleDrafts(decoding::DraftTree tree);

  // The pairs of one forward pass.
  struct Pairs {
    std::vector<int32_t> ids, features, positions, cu_seqlens_q, seq_lens_kv, block_tables;
    std::vector<int64_t> slot_mapping, tree_masks;

    int num_rows() const { return static_cast<int>(seq_lens_kv.size()); }
    int num_tokens() const { return static_cast<int>(ids.size()); }
    void Clear();
  };
  void AddPair(TokenId token, int32_t feature, int position, int place, const int32_t* blocks);
  // The pairs since the last row are a row, of a sequence of `num_places` places.
  void EndRow(int num_places, const int32_t* blocks);
  Result<TensorView> Forward(const TensorView& features, bool are_own, inflight::Stream& stream);

  // An ask that is answered, and where its nodes are.
  struct Drafting {
    const Ask* ask = nullptr;
    int num_computed = 0;  // nodes whose pairs were computed; they stand behind each other
    // [nodes] of those: their places among them, and their rows in the last forward pass.
    std::vector<int> order, rows;
  };
  Status DraftSome(std::span<const Ask* const> asks, inflight::Stream& stream);
  bool HasChild(const Ask& ask, int node) const;
  void AddNodes(Drafting* drafting, int depth);
  // Fills the children of nodes, those whose `parents` are given with the rows of their states.
  struct Parent {
    const Ask* ask = nullptr;
    int node = 0;  // -1: the root
    int32_t row = 0;
  };
  Status ChooseChildren(const TensorView& states, inflight::Stream& stream);

  // The table and the head of a model on ranks.
  class RankedTarget;

  const decoding::DraftTree tree_;
  std::unique_ptr<RankedTarget> target_;  // null: the engine has all of the model
  std::unique_ptr<model::EagleDecoder> decoder_;
  KvStorage kv_;
  ops::SlidingWindow sliding_;
  int vocab_size_ = 0, max_pairs_ = 0, max_blocks_ = 0;
  Buffer buffer_;
  model::KeptResiduals kept_;
  TensorView last_states_;         // [max_slots, hidden_size] float32: of each slot's last pair
  std::vector<size_t> num_known_;  // [max_slots] tokens that the slot had then
  // Of a call.
  Pairs pairs_;
  struct End {  // of a slot's pairs: its tokens then, and the row of the last one
    scheduler::SlotId slot = 0;
    size_t num_known = 0;
    int row = 0;
  };
  std::vector<End> ends_;
  std::vector<const Ask*> asks_;
  std::vector<Drafting> drafting_;
  std::vector<Parent> parents_;
  std::vector<int32_t> rows_;
};

}  // namespace inflight::executor
