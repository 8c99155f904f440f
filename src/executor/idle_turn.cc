// SPDX-License-Identifier: Apache-2.0
#include "executor/idle_turn.h"

#include "base/status_macros.h"

namespace inflight::executor {

Status IdleTurn::Do(const std::function<Status()>& work) {
  std::unique_lock lock(mutex_);
  ++num_waiting_;
  changed_.wait(lock, [this] { return MayWork() || !failed_.ok(); });
  Status done = failed_;
  if (done.ok()) {
    is_working_ = true;
    lock.unlock();
    done = work();
    lock.lock();
    is_working_ = false;
  }
  --num_waiting_;
  lock.unlock();
  changed_.notify_all();
  return done;
}

Status IdleTurn::BeginStep(const std::function<Status()>& await) {
  std::unique_lock lock(mutex_);
  if (num_waiting_ > 0) {
    if (num_steps_ > 0) {
      lock.unlock();
      RETURN_IF_ERROR(await());
      lock.lock();
    }
    steps_have_ended_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return num_waiting_ == 0; });
    steps_have_ended_ = false;
  }
  ++num_steps_;
  return Status::Ok();
}

void IdleTurn::EndStep() {
  {
    const std::lock_guard lock(mutex_);
    --num_steps_;
  }
  changed_.notify_all();
}

void IdleTurn::Fail(const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_.ok()) failed_ = why;
  }
  changed_.notify_all();
}

}  // namespace inflight::executor
