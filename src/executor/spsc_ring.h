// SPDX-License-Identifier: Apache-2.0
// Bounded ring from one producer thread to one consumer thread; neither ever waits.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <vector>

namespace inflight::executor {

inline constexpr size_t kCacheLineBytes = 64;

template <typename T>
class SpscRing {
 public:
  explicit SpscRing(size_t capacity) : slots_(std::bit_ceil(capacity)) {}

  bool Push(const T& value) {  // producer; false when full
    const size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - cached_head_ == slots_.size()) {
      cached_head_ = head_.load(std::memory_order_acquire);
      if (tail - cached_head_ == slots_.size()) return false;
    }
    slots_[tail & (slots_.size() - 1)] = value;
    tail_.store(tail + 1, std::memory_order_seq_cst);  // ordered before a check for a sleeper
    return true;
  }

  bool Pop(T* value) {  // consumer; false when empty
    const size_t head = head_.load(std::memory_order_relaxed);
    if (head == cached_tail_) {
      cached_tail_ = tail_.load(std::memory_order_seq_cst);
      if (head == cached_tail_) return false;
    }
    *value = slots_[head & (slots_.size() - 1)];
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

  bool empty() const {  // consumer
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_seq_cst);
  }

 private:
  std::vector<T> slots_;
  alignas(kCacheLineBytes) std::atomic<size_t> head_{0};
  size_t cached_tail_ = 0;  // consumer's
  alignas(kCacheLineBytes) std::atomic<size_t> tail_{0};
  size_t cached_head_ = 0;  // producer's
};

}  // namespace inflight::executor
