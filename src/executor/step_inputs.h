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

  // Of all slots in a KV group; of each of them.
  const SlotTables& tables(int group = 0) const { return tables_[static_cast<size_t>(group)]; }
  std::span<const SlotTables> all_tables() const { return tables_; }

  // Packs the plan's rows, those that have drafts with the first ones of their slot, which take the
  // places behind its tokens whatever their positions in a tree. The logits of a row that yields
  // are those of its newest known token and of its drafts. Of decode rows, ids,
  // positions, lengths and slot mapping come from the slot's own tokens. The caches of
  // Batch::other_groups are left to the caller. kInternal when a row does
  // not fit its slot: a defect of the planner, reported as a device fault.
  Result<model::Batch> Prepare(const scheduler::StepPlan& plan, std::span<const SlotTokens> slots,
                               const PromptTables& tables);

  static uint64_t Bytes(const MemoryPlan& plan, int max_slots);

 private:
  explicit StepInputs(const MemoryPlan& plan) : plan_(plan) {}

  // The places of a row's tokens: [first, end), that of the batch's token `first_token` the first.
  struct RowPlaces {
    int first = 0, end = 0;
    int first_token = 0;
  };
  // In each KV group: where they are written, and the row's table.
  void PlaceRow(int row, scheduler::SlotId slot, const RowPlaces& places);

  MemoryPlan plan_;
  Buffer buffer_;
  int32_t* ids_ = nullptr;              // [max_num_tokens]
  int32_t* positions_ = nullptr;        // [max_num_tokens]
  const void** prompt_rows_ = nullptr;  // [max_num_tokens] where requests may have tables
  int64_t* tree_masks_ = nullptr;       // [max_num_tokens]
  int32_t* cu_seqlens_q_ = nullptr;     // [max_batch_size + 1]
  int32_t* seq_lens_kv_ = nullptr;      // [max_batch_size]
  int32_t* logit_rows_ = nullptr;       // [max_logits]
  // [num_groups]
  std::vector<int64_t*> slot_mappings_;  // [max_num_tokens] each
  std::vector<int32_t*> row_tables_;  // [max_batch_size, max_blocks_per_seq], of this step's rows
  std::vector<SlotTables> tables_;
};

}  // namespace inflight::executor
