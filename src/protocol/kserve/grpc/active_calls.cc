// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/active_calls.h"

#include <string>
#include <utility>
#include <vector>

#include "protocol/kserve/grpc/grpc_status.h"

namespace inflight::kserve_grpc {

Result<ActiveCalls::CallId> ActiveCalls::Enter(std::weak_ptr<Drainable> drainable) {
  std::lock_guard lock(mutex_);
  if (stopping_) return Stopping();
  if (calls_.size() >= max_calls_) {
    return Unavailable("too many inference calls are under way: the limit is " +
                       std::to_string(max_calls_) + " (--grpc-max-calls)");
  }
  const CallId id = next_id_++;
  calls_.emplace(id, std::move(drainable));
  return id;
}

void ActiveCalls::Leave(CallId id) {
  std::lock_guard lock(mutex_);
  calls_.erase(id);
  // Under the lock: the waiter may destroy this object as soon as it gets the lock.
  if (calls_.empty()) idle_.notify_all();
}

void ActiveCalls::Stop() {
  std::vector<std::shared_ptr<Drainable>> drainables;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [id, call] : calls_) {
      if (auto drainable = call.lock()) drainables.push_back(std::move(drainable));
    }
  }
  for (const auto& drainable : drainables) drainable->Drain();
}

bool ActiveCalls::WaitUntilIdle(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, timeout, [this] { return calls_.empty(); });
}

}  // namespace inflight::kserve_grpc
