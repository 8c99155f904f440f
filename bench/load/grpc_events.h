// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/completion_queue.h>

#include <chrono>

#include "bench/load/load.h"

namespace inflight::bench {

// Hands events of `queue` to `handle(tag, ok)`, which says how many requests ended with one, until
// some have or it is `until_ns` (LoadNowNs). How many have.
template <typename Handle>
int PollEvents(grpc::CompletionQueue& queue, int64_t until_ns, const Handle& handle) {
  int num_ended = 0;
  while (num_ended == 0) {
    const int64_t left_ns = until_ns - LoadNowNs();
    if (left_ns <= 0) break;
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + std::chrono::nanoseconds(left_ns);
    if (queue.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) break;
    num_ended += handle(tag, ok);
  }
  return num_ended;
}

}  // namespace inflight::bench
