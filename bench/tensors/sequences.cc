// SPDX-License-Identifier: Apache-2.0
#include "bench/tensors/sequences.h"

#include <algorithm>
#include <cmath>

namespace inflight::bench {

SequenceStep Sequences::Next(size_t slot_idx) {
  Slot& slot = slots_[slot_idx];
  const bool is_start = slot.num_left == 0;
  if (is_start) {
    const double spread = options_.length * options_.variation;
    const int least = std::max(1, static_cast<int>(std::ceil(options_.length - spread)));
    const int most = std::max(least, static_cast<int>(std::floor(options_.length + spread)));
    slot.num_left = least + static_cast<int>(random_() % static_cast<uint64_t>(most - least + 1));
    slot.num_sent = 0;
    slot.id = NewId(slot);
  }
  --slot.num_left;
  ++slot.num_sent;
  return {.id = slot.id, .is_start = is_start, .is_end = slot.num_left == 0};
}

// Not that of another slot, whose last request may still be under way.
uint64_t Sequences::NewId(const Slot& slot) {
  while (true) {
    const uint64_t id = next_id_;
    next_id_ = id == options_.last_id ? options_.first_id : id + 1;
    const bool is_taken = std::ranges::any_of(
        slots_, [&](const Slot& other) { return &other != &slot && other.id == id; });
    if (!is_taken) return id;
  }
}

std::optional<SequenceStep> Sequences::Rest(size_t slot_idx) {
  Slot& slot = slots_[slot_idx];
  if (slot.num_left == 0) return std::nullopt;
  slot.num_left = 0;
  ++slot.num_sent;
  return SequenceStep{.id = slot.id, .is_start = false, .is_end = true};
}

}  // namespace inflight::bench
