// SPDX-License-Identifier: Apache-2.0
// Bytes from one thread to another; neither waits. What does not fit whole is not taken.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace inflight::flight_recorder {

class ByteRing {
 public:
  explicit ByteRing(size_t capacity)
      : size_(std::bit_ceil(capacity)), bytes_(std::make_unique<char[]>(size_)) {}

  // The producer's. False: there is no room.
  bool Push(std::string_view bytes) {
    const size_t tail = tail_.load(std::memory_order_relaxed);
    if (bytes.size() > size_ - (tail - head_.load(std::memory_order_acquire))) return false;
    const size_t at = tail & (size_ - 1);
    const size_t first = std::min(bytes.size(), size_ - at);
    std::memcpy(bytes_.get() + at, bytes.data(), first);
    std::memcpy(bytes_.get(), bytes.data() + first, bytes.size() - first);
    tail_.store(tail + bytes.size(), std::memory_order_seq_cst);  // before a look for a sleeper
    return true;
  }

  // The consumer's: all that is there goes to the end of `out`.
  void Take(std::string* out) {
    const size_t head = head_.load(std::memory_order_relaxed);
    const size_t count = tail_.load(std::memory_order_seq_cst) - head;
    const size_t at = head & (size_ - 1);
    const size_t first = std::min(count, size_ - at);
    out->append(bytes_.get() + at, first);
    out->append(bytes_.get(), count - first);
    head_.store(head + count, std::memory_order_release);
  }
  bool empty() const {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_seq_cst);
  }

 private:
  const size_t size_;
  const std::unique_ptr<char[]> bytes_;
  std::atomic<size_t> head_{0};
  std::atomic<size_t> tail_{0};
};

}  // namespace inflight::flight_recorder
