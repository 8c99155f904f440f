// SPDX-License-Identifier: Apache-2.0
// Makes the executor of include/inflight/executor.h over a backend. The step loop is in
// step_loop.cc.
#pragma once

#include <memory>

#include "base/clock.h"
#include "executor/backend.h"
#include "inflight/executor.h"

namespace inflight::executor {

// What requests of an executor are validated by, over a backend of that description:
// kInvalidArgument where an option is beyond what the backend allows.
Result<ExecutorLimits> MakeLimits(const BackendInfo& info, const ExecutorOptions& options);

Result<std::unique_ptr<Executor>> CreateExecutor(std::unique_ptr<Backend> backend,
                                                 const ExecutorOptions& options,
                                                 Clock& clock = Clock::System());

}  // namespace inflight::executor
