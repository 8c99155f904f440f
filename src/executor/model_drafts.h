// SPDX-License-Identifier: Apache-2.0
// Drafts by a second, smaller model of the same vocabulary on this process's CPU
// (docs/reference/speculation.md, "A draft model"). Its keys and values have room for kMaxLanes
// sequences of full length; of more at once, some have no drafts. What a lane holds is told by its
// tokens: of another sequence, or of drafts that came to nothing, only the common beginning counts.
//
// Threads: one thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "decoding/sampler.h"
#include "executor/kv_storage.h"
#include "executor/memory_plan.h"
#include "model/decoder.h"
#include "model/engine.h"
#include "ops/backend.h"

namespace inflight::executor {

// kInvalidArgument "draft_model" where the draft model has another vocabulary than the model, or
// sees fewer tokens than the plan allows.
Status CheckDraftModel(const model::Engine& draft, int vocab_size, const MemoryPlan& plan);

class ModelDrafts {
 public:
  static constexpr int kMaxLanes = 16;

  // For sequences of the plan's slots, at most as long as it says.
  static Result<std::unique_ptr<ModelDrafts>> Create(std::shared_ptr<const model::Engine> engine,
                                                     int vocab_size, Device& device,
                                                     const MemoryPlan& plan,
                                                     const ops::OpTable& ops);

  // What Create takes at most, beside the weights, for a model of those limits.
  static uint64_t Bytes(const model::ModelConfig& draft, const model::EngineLimits& draft_limits,
                        const model::EngineLimits& limits);

  struct Ask {
    SlotId slot = 0;
    int max_drafts = 0;                            // > 0
    const std::vector<TokenId>* tokens = nullptr;  // all that the slot knows
    std::vector<TokenId>* drafts = nullptr;        // filled
  };
  // `max_drafts` tokens after those of each slot, drawn by the slots' rules from this model's
  // logits, or none; fewer where a slot's guide lets nothing follow. `sampler` is that of the
  // slots.
  Status Draft(std::span<const Ask> asks, decoding::Sampler& sampler, inflight::Stream& stream);

 private:
  ModelDrafts() = default;

  struct Lane {
    SlotId slot = -1;               // whose it is
    int64_t last_used = 0;          // which call of Draft
    std::vector<TokenId> computed;  // tokens whose keys and values it holds, drafts too
  };
  struct Drafting {
    const Ask* ask = nullptr;
    int lane = 0;
    std::unique_ptr<decoding::GuidedSlot> guide;  // where the drafts so far lead; null: has none
    bool has_ended = false;                       // nothing may follow them
  };
  // What is computed of an ask: its tokens and drafts [begin, end).
  struct Row {
    Drafting* drafting = nullptr;
    int begin = 0, end = 0;
  };
  static TokenId TokenAt(const Ask& ask, int position);
  int LaneOf(SlotId slot);
  void Begin(const Ask& ask, const decoding::Sampler& sampler);
  void Draw(Drafting* drafting, float* logits, decoding::Sampler* sampler);
  Result<TensorView> Forward(std::span<const Row> rows, inflight::Stream& stream);

  std::shared_ptr<const model::Engine> engine_;
  std::unique_ptr<model::Decoder> decoder_;
  KvStorage kv_;
  int blocks_per_lane_ = 0, max_num_tokens_ = 0, vocab_size_ = 0;
  std::vector<Lane> lanes_;
  int64_t num_calls_ = 0;
  // Of a call, and of a forward pass.
  std::vector<Drafting> drafting_;
  std::vector<TokenId> text_;
  std::vector<Row> rows_;
  std::vector<int32_t> ids_, positions_, cu_seqlens_q_, seq_lens_kv_, block_tables_, logit_rows_;
  std::vector<int64_t> slot_mapping_;
};

}  // namespace inflight::executor
