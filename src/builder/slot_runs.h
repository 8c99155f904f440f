// SPDX-License-Identifier: Apache-2.0
// Which slots of a model are made at a time where not all of them fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/weight_slots.h"

namespace inflight::builder {

// Slots [begin, end) of a list.
struct SlotRun {
  size_t begin = 0, end = 0;
  uint64_t num_bytes = 0;
};

// Cuts `slots`, of `num_bytes[i]` each, into runs, in order. A quantised matrix and its scales,
// which may stand behind further matrices, are made at once and never cut apart; a run has more
// than `max_bytes` only where such slots alone do. Thread-safe.
std::vector<SlotRun> RunsOf(std::span<const model::WeightSlot> slots,
                            std::span<const uint64_t> num_bytes, uint64_t max_bytes);

}  // namespace inflight::builder
