// SPDX-License-Identifier: Apache-2.0
// Trees of drafts by a head of EAGLE on its model's GPU (docs/reference/speculation.md, "EAGLE";
// what it computes is model/eagle_decoder.h), in the stream of the steps, so that the next step is
// drafted, launched and judged without the host:
//
//   a step     behind its forward pass and its sampling: the features of what it settled go to
//              rings, one of each slot; of prompts the keys and values of all pairs are computed
//   the next   where drafts are planned: pass 0 computes the last pair of each sequence, with the
//              few before it that wait (executor/pending_pairs.h), and finds the best tokens behind
//              it; pass d: the pairs of the nodes of depth d that have children, which get the best
//              tokens behind these
//   otherwise  pairs wait in their rings until many are computed at once
//
// The layer is one, so keys and values of a pair are of that pair alone: they may be computed in
// any order, without the rest of the layer. They have the block ids of the model's.
//
// In the model's dtype: also states and residuals, sums in float32.
//
// Threads: the executor's.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "decoding/cuda/device_sampler.h"
#include "executor/cuda/eagle_kernels.h"
#include "executor/cuda/pass_graphs.h"
#include "executor/cuda/step_state.h"
#include "executor/cuda/tree_model.h"
#include "executor/kv_storage.h"
#include "executor/memory_plan.h"
#include "executor/pending_pairs.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/eagle_head.h"
#include "ops/backend.h"

namespace inflight::executor::cuda {

class EagleModel : public TreeModel {
 public:
  // Of a plan that has a tree; `ops` fit the head's layer, `target` is the model's configuration.
  // `decoder`, which has the table and the head of the model, `beside` and `state` are those of the
  // steps; they outlive it.
  static Result<std::unique_ptr<EagleModel>> Create(std::shared_ptr<const model::EagleHead> head,
                                                    const model::ModelConfig& target,
                                                    ops::OpTable ops, const MemoryPlan& plan,
                                                    model::Decoder& decoder,
                                                    inflight::Stream& beside,
                                                    const StepState& state, Device& device);

  // What Create takes beside keys and values.
  static uint64_t Bytes(const model::EagleConfig& config, const MemoryPlan& plan);
  uint64_t pinned_bytes() const override { return arenas_.size() + best_sampler_->pinned_bytes(); }
  const ops::KvCacheView* kv() const override { return &kv_.view(); }
  std::shared_ptr<ReleasableMemory> kv_memory() const override { return kv_.releasable(); }
  const model::KeptResiduals* residuals() const override {
    return kept_.layers.empty() ? nullptr : &kept_;
  }
  Status WarmUp(bool use_graphs, bool records_all, logging::Level level) override;
  Status SetUp(const SlotSetup& setup) override;
  Status Prepare(const scheduler::StepPlan& plan) override;
  Status Draft(const scheduler::StepPlan& plan, uint64_t step) override;
  Status Settle(const KvStorage& kv, const TensorView& states, const StepShape& shape) override;

 private:
  struct Arrays {
    TensorView kept;         // [max_num_tokens, feature_width]; version 3
    TensorView ring;         // [num_slots * kEagleRing, feature_width]
    TensorView own_states;   // [max_rows, hidden_size]: of a pass
    TensorView residual, x;  // [max_num_tokens, hidden_size]
    TensorView wide;         // [max_num_tokens, 2 hidden_size]
    TensorView qkv, q;       // [max_num_tokens, ...]
    TensorView delta, attention, gate_up, inner, normed;  // [max_rows, ...]
    TensorView cos_sin, best, token_ids;
    TensorView logits;  // [max_rows, draft_vocab_size] float32; version 3
    TensorView ids, positions, slot_mapping, cu_seqlens_q, seq_lens_kv, table_rows, feature_rows,
        all, none, tree_shifts, first_kept;
  };
  static uint64_t LayOut(const model::EagleConfig& config, const MemoryPlan& plan, std::byte* base,
                         Arrays* out);

  EagleModel(const StepState& state, model::Decoder& decoder, inflight::Stream& beside,
             const MemoryPlan& plan);

  int max_rows() const { return static_cast<int>(arrays_.all.shape[0]); }  // of a pass
  ops::Norm NormOf(const TensorView& weight) const {
    return {ops::NormKind::kRmsNorm, weight, {}, head_->config.layer.norm_eps};
  }
  // Leaves the states of the pairs, of a pass, in arrays_.residual.
  Status Forward(const TensorView& ids, const TensorView& features, const int32_t* rows,
                 bool are_own, const ops::PagedBatch& paged);
  // Keys and values of pairs alone. Of `paged` tokens are read, not rows.
  Status WritePairs(const TensorView& ids, const TensorView& features, const int32_t* rows,
                    const ops::PagedBatch& paged);
  // In the model's dtype; of the head's own table in `y`.
  Result<TensorView> Embed(const TensorView& ids, const TensorView& y);
  Status Enter(const TensorView& ids, const TensorView& features, const int32_t* rows, bool are_own,
               int64_t num_tokens);
  Status WriteKv(const ops::PagedBatch& paged);
  TensorView QueriesOf(int64_t num_tokens) const;
  int64_t QueryStride() const;
  Status RunLayer(const ops::PagedBatch& paged);
  // Keys and values of the last pairs of slots, filled up to `num_rows` rows.
  Status WriteLastPairs(const LastPairs& pairs, int num_rows);
  Status WriteLastPairs(std::span<const PendingPairs::OfSlot> pairs);
  // The best tokens behind `rows` of `states`, for the children of the rows of a pass.
  Status Choose(int pass, const TensorView& states, const int32_t* rows, int num_rows);
  Status Enqueue(int pass, int num_rows);
  void Pack(const scheduler::StepPlan& plan, EagleArena* arena);
  ops::PagedBatch TokensOf(int num_tokens) const;

  const StepState& state_;
  model::Decoder& decoder_;
  inflight::Stream& beside_;
  const decoding::DraftTree tree_;
  PendingPairs pending_;
  std::shared_ptr<const model::EagleHead> head_;
  int target_vocab_size_ = 0;
  ops::OpTable ops_;
  std::unique_ptr<inflight::Stream> stream_;  // of the head's operators: their memory is its own
  KvStorage kv_;
  ops::SlidingWindow sliding_;
  ops::Rope rope_;
  float attention_scale_ = 1;
  Buffer buffer_;
  Arrays arrays_;
  EagleTensors tensors_;
  model::KeptResiduals kept_;
  std::vector<int> num_choices_;                           // of the children of each pass's rows
  std::vector<int> first_children_;                        // of each node; tree_.size(): has none
  PinnedBuffer arenas_;                                    // [kNumArenas] EagleArena
  std::unique_ptr<decoding::DeviceSampler> best_sampler_;  // of one slot, which has no rule
  // Of the sequences that are drafted for: which row of its pass each draft has.
  std::vector<std::array<int32_t, TreeOnDevice::kMaxDrafts>> rows_of_;
  std::unique_ptr<PassGraphs> passes_;  // of each pass
};

}  // namespace inflight::executor::cuda
