// SPDX-License-Identifier: Apache-2.0
// Where requests of a load stand in their sequences, one sequence at a time in each slot.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "bench/load/load.h"
#include "bench/tensors/measure.h"

namespace inflight::bench {

class Sequences {
 public:
  // There are at least as many ids as slots.
  Sequences(const SequenceOptions& options, uint64_t seed)
      : options_(options), random_(seed), next_id_(options.first_id) {}

  // Forgets what the slots held.
  void SetSlots(size_t num_slots) { slots_.assign(num_slots, {}); }

  // The next request of the slot's sequence, else the first of a new one.
  SequenceStep Next(size_t slot);
  // How many requests of the sequence came before the one that Next gave.
  size_t position(size_t slot) const { return slots_[slot].num_sent - 1; }
  // A request failed: the sequence is over.
  void Drop(size_t slot) { slots_[slot].num_left = 0; }
  // The last request of a sequence that was cut short, if it was.
  std::optional<SequenceStep> Rest(size_t slot);

 private:
  struct Slot {
    uint64_t id = 0;
    int num_left = 0;
    size_t num_sent = 0;
  };

  uint64_t NewId(const Slot& slot);

  const SequenceOptions options_;
  std::mt19937_64 random_;
  uint64_t next_id_;
  std::vector<Slot> slots_;
};

}  // namespace inflight::bench
