// SPDX-License-Identifier: Apache-2.0
// The packed inputs of one step at fixed addresses and maximum sizes: what Prepare fills from a
// StepPlan and a model reads.
#pragma once

#include <span>
#include <vector>

#include "decoding/draft_tree.h"
#include "executor/memory_plan.h"
#include "executor/prompt_tables.h"
#include "executor/slot_tables.h"
#include "model/decoder.h"
#include "scheduler/step_plan.h"
#include "tensor/buffer.h"

namespace inflight::executor {

// What a slot's sequence is, as the device keeps it between steps.
struct SlotTokens {
  std::vector<TokenId> tokens;  // known so far: prompt, then generated; capacity max_seq_len
  std::vector<TokenId> drafts;  // what may follow them; the next row that yields verifies it
  const decoding::DraftTree* tree = nullptr;  // whose first nodes the drafts are; null: a chain
};

class StepInputs {
 public:
  static Result<std::unique_ptr<StepInputs>> Create(const MemoryPlan& plan, int max_slots,
                                                    Device& device);

  const SlotTables& tables() const { return tables_; }  // of all slots

  // Packs the plan's rows, those that have drafts with the first ones of their slot, which take the
  // places behind its tokens whatever their positions in a tree. The logits of a row that yields
  // are those of its newest known token and of its drafts. Of decode rows, ids,
  // positions, lengths and slot mapping come from the slot's own tokens. kInternal when a row does
  // not fit its slot: a defect of the planner, reported as a device fault.
  Result<model::Batch> Prepare(const scheduler::StepPlan& plan, std::span<const SlotTokens> slots,
                               const PromptTables& tables);

  static uint64_t Bytes(const MemoryPlan& plan, int max_slots);

 private:
  explicit StepInputs(const MemoryPlan& plan) : plan_(plan) {}

  MemoryPlan plan_;
  Buffer buffer_;
  int32_t* ids_ = nullptr;              // [max_num_tokens]
  int32_t* positions_ = nullptr;        // [max_num_tokens]
  const void** prompt_rows_ = nullptr;  // [max_num_tokens] where requests may have tables
  int64_t* slot_mapping_ = nullptr;     // [max_num_tokens]
  int64_t* tree_masks_ = nullptr;       // [max_num_tokens]
  int32_t* cu_seqlens_q_ = nullptr;     // [max_batch_size + 1]
  int32_t* seq_lens_kv_ = nullptr;      // [max_batch_size]
  int32_t* logit_rows_ = nullptr;       // [max_logits]
  int32_t* row_tables_ = nullptr;       // [max_batch_size, max_blocks_per_seq], this step's rows
  SlotTables tables_;
};

}  // namespace inflight::executor
