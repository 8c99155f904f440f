// SPDX-License-Identifier: Apache-2.0
// Block tables of all slots in one KV group, and the spare blocks of beams: what plans and searches
// do to them (kv_cache/beam_tables.h). The memory is the owner's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv_cache/beam_tables.h"
#include "scheduler/step_plan.h"

namespace inflight::executor {

struct SlotTables {
  int32_t* blocks = nullptr;  // [max_slots, max_blocks]
  int32_t* spares = nullptr;  // [max_slots]
  int max_blocks = 0;
  int block_size = 0;
  int first_block = 0;  // the device's id of the plans' block 0
  int group = 0;

  int32_t* Of(scheduler::SlotId slot) const { return blocks + int64_t{slot} * max_blocks; }

  // Entries that the plan's slots gained in this group.
  void Apply(const scheduler::StepPlan& plan) const;

  // Beam j of a search, whose slot is slots[j], goes on from beam parents[j]; each holds
  // `num_tokens`. Appends what has to be copied.
  void Reorder(std::span<const scheduler::SlotId> slots, std::span<const int32_t> parents,
               int num_tokens, std::vector<kv_cache::BlockCopy>* copies) const;
};

}  // namespace inflight::executor
