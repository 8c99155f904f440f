// SPDX-License-Identifier: Apache-2.0
#include "executor/slot_tables.h"

namespace inflight::executor {

void SlotTables::Apply(const scheduler::StepPlan& plan) const {
  for (int i = 0; i < plan.num_updates; ++i) {
    const scheduler::BlockTableUpdate& update = plan.updates[static_cast<size_t>(i)];
    if (update.group != group) continue;
    const bool is_spare = update.first_idx == scheduler::BlockTableUpdate::kSpare;
    int32_t* const to = is_spare ? spares + update.slot : Of(update.slot) + update.first_idx;
    for (int b = 0; b < update.num_blocks; ++b) {
      to[b] = plan.block_ids[static_cast<size_t>(update.offset + b)] + first_block;
    }
  }
}

void SlotTables::Reorder(std::span<const scheduler::SlotId> slots, std::span<const int32_t> parents,
                         int num_tokens, std::vector<kv_cache::BlockCopy>* copies) const {
  std::vector<kv_cache::BeamTableView> beams;
  beams.reserve(slots.size());
  for (const scheduler::SlotId slot : slots) beams.push_back({Of(slot), spares + slot});
  kv_cache::ReorderBeams(beams, parents, num_tokens, block_size, copies);
}

}  // namespace inflight::executor
