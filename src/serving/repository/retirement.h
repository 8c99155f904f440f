// SPDX-License-Identifier: Apache-2.0
// Ends models that nobody uses any more, on a thread of its own: the last user may be one of the
// model's threads, or one that must not wait.
//
// Threads: all methods are thread-safe. After Close models end where they are let go of.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/worker_pool.h"
#include "serving/core/model.h"

namespace inflight::serving {

class Retirement {
 public:
  // `patience`: far longer than it takes to end a request.
  explicit Retirement(std::chrono::milliseconds patience = std::chrono::seconds(5))
      : patience_(patience) {}

  // A pointer to the same model whose last user hands it over here. `retirement` lives as long.
  static std::shared_ptr<Model> Guard(std::shared_ptr<Retirement> retirement,
                                      std::shared_ptr<Model> model);
  // Returns when all models have ended: a request that was answered holds its own for a moment
  // more. One that somebody keeps for longer than that is not waited for.
  void Close();

 private:
  void End(std::shared_ptr<Model> last);

  const std::chrono::milliseconds patience_;  // of Close
  std::mutex mutex_;
  std::condition_variable was_handed_over_;
  int num_guarded_ = 0;  // and not handed over yet
  std::unique_ptr<WorkerPool> pool_ = std::make_unique<WorkerPool>(1, "unload");  // null = closed
};

}  // namespace inflight::serving
