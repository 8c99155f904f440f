// SPDX-License-Identifier: Apache-2.0
// Drafts by a second, smaller model of the same vocabulary on the same GPU
// (docs/reference/speculation.md, "A draft model"). It runs in the stream of the steps, so that the
// next step is drafted, launched and judged without the host:
//
//   prompts    the model computes what a step computes of prompts, after it
//   a step     first pass: the tokens of each sequence that the model has not computed yet, and
//              one draft of each; further passes: a draft more of those that have more
//
// Its keys and values have the block ids of the model's: what is reused, paused or kept in host
// memory is so for both. A block of generated tokens that was filled by steps without drafts holds
// none of the draft model's; who reuses it gets worse drafts.
//
// Threads: the executor's.
#pragma once

#include <memory>
#include <vector>

#include "base/log.h"
#include "decoding/cuda/device_sampler.h"
#include "executor/cuda/draft_kernels.h"
#include "executor/cuda/step_graphs.h"
#include "executor/cuda/step_state.h"
#include "executor/kv_storage.h"
#include "executor/memory_plan.h"
#include "model/decoder.h"
#include "ops/backend.h"

namespace inflight::executor::cuda {

class DraftModel {
 public:
  // `beside` is the stream of the steps, `state` and `sampler` are theirs; all outlive it.
  static Result<std::unique_ptr<DraftModel>> Create(std::shared_ptr<const model::Engine> engine,
                                                    const ops::OpTable& ops, ops::OpChoice choice,
                                                    const MemoryPlan& plan, Stream& beside,
                                                    const StepState& state,
                                                    const decoding::DeviceSampler& sampler,
                                                    Device& device);

  // What Create takes at most, beside weights, keys and values, for a model of those limits.
  static uint64_t Bytes(const model::ModelConfig& config, int max_seq_len, int max_num_tokens,
                        int max_rows);

  const ops::KvCacheView& kv() const { return kv_.view(); }
  const KvStorage& kv_storage() const { return kv_; }
  const model::Engine& engine() const { return *engine_; }
  uint64_t pinned_bytes() const { return arenas_.size(); }

  // Runs every kind of pass once, and records graphs as steps do.
  Status WarmUp(bool use_graphs, bool records_all, logging::Level level);

  // The slot has another sequence.
  void SetUp(scheduler::SlotId slot) { num_missing_[static_cast<size_t>(slot)] = 0; }

  // Enqueues the drafts of the `step`-th step, whose inputs are packed and not begun. `is_greedy`:
  // no sequence of it samples.
  Status Draft(const scheduler::StepPlan& plan, uint64_t step, bool is_greedy);

  // Enqueues what follows a step that computes prompts: the same tokens in this model.
  Status ComputePrompts(const model::Batch& batch);

 private:
  DraftModel(const StepState& state, const decoding::DeviceSampler& sampler)
      : state_(state), sampler_(sampler) {}

  int Pack(const scheduler::StepPlan& plan, DraftArena* arena);
  Status Enqueue(int num_rows, StepVariant variant, bool is_first);
  Status Run(int num_rows, StepVariant variant, bool is_first);
  model::Batch BatchOf(int num_rows) const;

  const StepState& state_;
  const decoding::DeviceSampler& sampler_;
  std::shared_ptr<const model::Engine> engine_;
  std::unique_ptr<Stream> stream_;  // of the operators: their memory is its own
  std::unique_ptr<model::Decoder> decoder_;
  KvStorage kv_;
  Buffer buffer_;
  StepTensors tensors_;
  int32_t* num_passes_ = nullptr;
  int32_t* prompt_ids_ = nullptr;  // [max_num_tokens]
  PinnedBuffer arenas_;            // [kNumArenas] DraftArena
  int max_rows_ = 0;               // of a pass
  bool use_graphs_ = false;
  std::unique_ptr<StepGraphs> first_, next_;
  // [max_slots] tokens, the newest among them, whose keys and values the model may lack once the
  // steps planned so far are done.
  std::vector<int> num_missing_;
  std::vector<int> newest_;  // [max_slots] of a step: where the slot's newest token is
};

}  // namespace inflight::executor::cuda
