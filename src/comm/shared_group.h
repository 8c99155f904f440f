// SPDX-License-Identifier: Apache-2.0
// Collectives between CPU ranks that see the same memory: threads of one process, or processes that
// map one region. Payloads pass through the region in pieces; who waits spins for some
// microseconds and then sleeps on a futex.
//
// Of the region each rank has two pieces for AllReduce and AllGather, used in turn, and one for
// each rank that it sends to. A piece that two operations ago was written may be written again:
// between them every rank has arrived at the barrier that follows its last look at it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace inflight::comm {

class SharedGroup {
 public:
  static constexpr int kMaxRanks = 64;
  static constexpr size_t kPieceBytes = size_t{256} << 10;

  // Bytes of the region of a group of so many ranks. The region is zero before its first use.
  static size_t RegionBytes(int size);

  // Rank `rank` of the group whose region is `region`, which outlives it. `region` is aligned to 64
  // bytes. `alive` is asked again and again while this rank waits for long: an error aborts.
  static std::unique_ptr<Communicator> Join(std::span<std::byte> region, int rank, int size,
                                            std::function<Status()> alive = nullptr);
};

// A group of threads: its region, and the communicator of each rank.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size);
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  Communicator& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }
  int size() const { return static_cast<int>(ranks_.size()); }

 private:
  std::span<std::byte> region_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

}  // namespace inflight::comm
