// SPDX-License-Identifier: Apache-2.0
// The inference calls in progress: so many at most, and a stop refuses new ones and waits for
// these.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "inflight/status.h"

namespace inflight::kserve_grpc {

// A call that stays open without work, as an idle stream does: asked to end when there is none.
class Drainable {
 public:
  virtual ~Drainable() = default;
  virtual void Drain() = 0;  // thread-safe, does not block
};

// Threads: all methods are thread-safe.
class ActiveCalls {
 public:
  using CallId = uint64_t;

  explicit ActiveCalls(size_t max_calls) : max_calls_(max_calls) {}

  // An id is given back to Leave; never 0. kUnavailable: the call must be refused so.
  Result<CallId> Enter(std::weak_ptr<Drainable> drainable = {});
  void Leave(CallId id);

  // From here on Enter refuses; all open calls are asked to drain.
  void Stop();
  bool WaitUntilIdle(std::chrono::milliseconds timeout);  // false: calls are still open

 private:
  const size_t max_calls_;
  std::mutex mutex_;
  std::condition_variable idle_;
  bool stopping_ = false;
  CallId next_id_ = 1;
  std::unordered_map<CallId, std::weak_ptr<Drainable>> calls_;
};

}  // namespace inflight::kserve_grpc
