// SPDX-License-Identifier: Apache-2.0
// Bounded ring from many producer threads to one consumer thread; neither ever waits. Each slot
// carries a turn number, by which a producer claims it and the consumer knows that it is filled
// (Vyukov's bounded queue).
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>

#include "executor/spsc_ring.h"

namespace inflight::executor {

template <typename T>
class MpscRing {
 public:
  explicit MpscRing(size_t capacity)
      : mask_(std::bit_ceil(capacity) - 1), slots_(std::make_unique<Slot[]>(mask_ + 1)) {
    for (size_t i = 0; i <= mask_; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
  }

  // Any thread; false, and `value` kept, when full. With the tail a producer acquires what those
  // before it knew: who knows by other means that there is room is not told otherwise by an older
  // turn of its slot.
  bool Push(T&& value) {
    size_t tail = tail_.load(std::memory_order_acquire);
    while (true) {
      Slot& slot = slots_[tail & mask_];
      const size_t turn = slot.turn.load(std::memory_order_acquire);
      if (turn == tail) {
        if (tail_.compare_exchange_weak(tail, tail + 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
          slot.value = std::move(value);
          slot.turn.store(tail + 1, std::memory_order_seq_cst);
          return true;
        }
      } else if (turn < tail) {
        return false;
      } else {
        tail = tail_.load(std::memory_order_acquire);
      }
    }
  }

  bool Pop(T* value) {  // consumer; false when empty
    Slot& slot = slots_[head_ & mask_];
    if (slot.turn.load(std::memory_order_seq_cst) != head_ + 1) return false;
    *value = std::move(slot.value);
    slot.turn.store(head_ + mask_ + 1, std::memory_order_release);
    ++head_;
    return true;
  }

  // Consumer: false while a producer that came first has not filled its slot yet; those behind it
  // cannot be popped either.
  bool all_popped() const { return tail_.load(std::memory_order_seq_cst) == head_; }

  bool empty() const {  // consumer
    return slots_[head_ & mask_].turn.load(std::memory_order_seq_cst) != head_ + 1;
  }

 private:
  struct Slot {
    std::atomic<size_t> turn;
    T value{};
  };

  size_t mask_;
  std::unique_ptr<Slot[]> slots_;
  alignas(kCacheLineBytes) std::atomic<size_t> tail_{0};
  alignas(kCacheLineBytes) size_t head_ = 0;
};

}  // namespace inflight::executor
