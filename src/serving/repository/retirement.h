// SPDX-License-Identifier: Apache-2.0
// Ends models that nobody uses any more, on a thread of its own: the last user may be one of the
// model's threads, or one that must not wait.
//
// Threads: all methods are thread-safe. After Close models end where they are let go of.
#pragma once

#include <memory>
#include <mutex>

#include "base/worker_pool.h"
#include "serving/core/model.h"

namespace inflight::serving {

class Retirement {
 public:
  // A pointer to the same model whose last user hands it over here. `retirement` lives as long.
  static std::shared_ptr<Model> Guard(std::shared_ptr<Retirement> retirement,
                                      std::shared_ptr<Model> model);
  // Returns when the models that were handed over have ended.
  void Close();

 private:
  void End(std::shared_ptr<Model> last);

  std::mutex mutex_;
  std::unique_ptr<WorkerPool> pool_ = std::make_unique<WorkerPool>(1, "unload");  // null = closed
};

}  // namespace inflight::serving
