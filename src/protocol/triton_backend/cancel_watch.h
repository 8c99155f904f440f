// SPDX-License-Identifier: Apache-2.0
// Asks the server again and again which requests nobody waits for any more: its interface for
// backends has no call that would tell. The thread sleeps while there are none.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "serving/core/request.h"

namespace inflight::triton_backend {

class Watched {
 public:
  virtual ~Watched() = default;
  // What to cancel, where nobody waits any more; else null.
  virtual std::shared_ptr<serving::CancelToken> Unwanted() const = 0;
};

// Threads: all methods are thread-safe.
class CancelWatch {
 public:
  explicit CancelWatch(int64_t period_ms);
  ~CancelWatch();  // when nothing is watched any more
  CancelWatch(const CancelWatch&) = delete;
  CancelWatch& operator=(const CancelWatch&) = delete;

  void Add(const Watched& watched);
  void Remove(const Watched& watched);  // nothing looks at it after this

 private:
  void Run();

  const int64_t period_ms_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_set<const Watched*> watched_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace inflight::triton_backend
