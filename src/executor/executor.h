// SPDX-License-Identifier: Apache-2.0
// Makes the executor of include/inflight/executor.h over a backend. The step loop is in
// step_loop.cc.
#pragma once

#include <memory>

#include "base/clock.h"
#include "executor/backend.h"
#include "executor/loop_watcher.h"
#include "executor/sleeper.h"
#include "inflight/executor.h"

namespace inflight::executor {

// What requests of an executor are validated by, over a backend of that description:
// kInvalidArgument where an option is beyond what the backend allows.
Result<ExecutorLimits> MakeLimits(const BackendInfo& info, const ExecutorOptions& options);

// Without a `sleeper` it cannot sleep.
Result<std::unique_ptr<Executor>> CreateExecutor(std::unique_ptr<Backend> backend,
                                                 const ExecutorOptions& options,
                                                 Clock& clock = Clock::System(),
                                                 std::unique_ptr<LoopWatcher> watcher = nullptr,
                                                 std::unique_ptr<Sleeper> sleeper = nullptr);

// An executor without threads, for simulations: whoever calls it decides when the step loop takes a
// turn and when sinks get their responses. Its Shutdown does both itself and cancels at once.
// Threads: Step and Deliver are each called by one thread at a time; the rest as of Executor.
class SteppedExecutor : public Executor {
 public:
  virtual bool Step() = 0;       // false: there was nothing to do
  virtual size_t Deliver() = 0;  // all responses that are there; the number of events
};

Result<std::unique_ptr<SteppedExecutor>> CreateSteppedExecutor(
    std::unique_ptr<Backend> backend, const ExecutorOptions& options, Clock& clock,
    std::unique_ptr<LoopWatcher> watcher = nullptr);

}  // namespace inflight::executor
