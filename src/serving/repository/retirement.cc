// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/retirement.h"

#include <utility>

namespace inflight::serving {

std::shared_ptr<Model> Retirement::Guard(std::shared_ptr<Retirement> retirement,
                                         std::shared_ptr<Model> model) {
  {
    const std::lock_guard lock(retirement->mutex_);
    ++retirement->num_guarded_;
  }
  Model* raw = model.get();
  return {raw, [retirement = std::move(retirement), last = std::move(model)](Model*) mutable {
            retirement->End(std::move(last));
          }};
}

void Retirement::End(std::shared_ptr<Model> last) {
  std::lock_guard lock(mutex_);
  if (pool_ == nullptr) return;  // `last` goes with the caller's frame, behind the lock
  --num_guarded_;
  pool_->Post([last = std::move(last)]() mutable { last = nullptr; });
  was_handed_over_.notify_all();
}

void Retirement::Close() {
  std::unique_ptr<WorkerPool> pool;
  {
    std::unique_lock lock(mutex_);
    if (pool_ != nullptr && pool_->has_threads())  // else nobody goes on while this waits
      was_handed_over_.wait_for(lock, patience_, [this] { return num_guarded_ == 0; });
    pool = std::move(pool_);
  }
  pool = nullptr;  // runs what was posted, which may hand over more
}

}  // namespace inflight::serving
