// SPDX-License-Identifier: Apache-2.0
#include "protocol/triton_backend/cancel_watch.h"

#include <chrono>
#include <utility>
#include <vector>

#include "base/thread_boundary.h"
#include "base/thread_name.h"

namespace inflight::triton_backend {

CancelWatch::CancelWatch(int64_t period_ms) : period_ms_(period_ms) {
  thread_ = std::thread([this] {
    NameThisThread("inflight-cancel");
    Run();
  });
}

CancelWatch::~CancelWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CancelWatch::Add(const Watched& watched) {
  const std::lock_guard lock(mutex_);
  watched_.insert(&watched);
  if (watched_.size() == 1) changed_.notify_all();
}

void CancelWatch::Remove(const Watched& watched) {
  const std::lock_guard lock(mutex_);
  watched_.erase(&watched);
}

void CancelWatch::Run() {
  std::unique_lock lock(mutex_);
  std::vector<std::shared_ptr<serving::CancelToken>> unwanted;
  while (!is_stopping_) {
    if (watched_.empty()) {
      changed_.wait(lock, [&] { return is_stopping_ || !watched_.empty(); });
      continue;
    }
    changed_.wait_for(lock, std::chrono::milliseconds(period_ms_), [&] { return is_stopping_; });
    RunTurn("inflight-cancel", [&] {
      for (const Watched* const watched : watched_) {
        if (auto token = watched->Unwanted()) unwanted.push_back(std::move(token));
      }
      lock.unlock();  // what is cancelled may end at once, and be removed
      for (const auto& token : unwanted) token->Cancel();
    });
    unwanted.clear();
    if (!lock.owns_lock()) lock.lock();
  }
}

}  // namespace inflight::triton_backend
