// SPDX-License-Identifier: Apache-2.0
#include "builder/slot_runs.h"

namespace inflight::builder {

std::vector<SlotRun> RunsOf(std::span<const model::WeightSlot> slots,
                            std::span<const uint64_t> num_bytes, uint64_t max_bytes) {
  std::vector<SlotRun> runs;
  SlotRun next;  // slots that go together
  int num_without_scales = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    next.end = i + 1;
    next.num_bytes += num_bytes[i];
    if (slots[i].is_quantized) ++num_without_scales;
    if (slots[i].kind == model::WeightSlot::Kind::kScales) --num_without_scales;
    if (num_without_scales > 0) continue;
    if (runs.empty() || runs.back().num_bytes + next.num_bytes > max_bytes) {
      runs.push_back(next);
    } else {
      runs.back().end = next.end;
      runs.back().num_bytes += next.num_bytes;
    }
    next = {.begin = i + 1};
  }
  return runs;
}

}  // namespace inflight::builder
