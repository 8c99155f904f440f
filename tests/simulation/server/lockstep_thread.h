// SPDX-License-Identifier: Apache-2.0
// A thread that works only while its owner waits for it: code that asks on which thread it is
// finds several, and yet one thing happens at a time, in an order that repeats.
#pragma once

#include <functional>
#include <semaphore>
#include <thread>
#include <utility>

namespace inflight::testing {

class LockstepThread {
 public:
  LockstepThread() : thread_([this] { Run(); }) {}
  ~LockstepThread() {
    work_ = nullptr;
    go_.release();
    thread_.join();
  }
  LockstepThread(const LockstepThread&) = delete;
  LockstepThread& operator=(const LockstepThread&) = delete;

  // Returns when `work` has.
  void Do(std::function<void()> work) {
    work_ = std::move(work);
    go_.release();
    done_.acquire();
  }

 private:
  void Run() {
    while (true) {
      go_.acquire();
      if (work_ == nullptr) return;
      work_();
      done_.release();
    }
  }

  std::binary_semaphore go_{0};
  std::binary_semaphore done_{0};
  std::function<void()> work_;
  std::thread thread_;  // last: runs over the above
};

}  // namespace inflight::testing
