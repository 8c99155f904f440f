// SPDX-License-Identifier: Apache-2.0
// Waiting for a step on a GPU that may have failed or hang, and faults for tests of it
// (docs/cuda.md, "Faults").
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "executor/backend.h"
#include "executor/cuda/debug_options.h"
#include "executor/cuda/step_state.h"

namespace inflight::executor::cuda {

int64_t NowNs();  // of the clock that steps are timed by

struct AwaitedStep {
  uint64_t step = 0;  // as of StepState
  Ticket ticket = 0;
};

// Until `is_there` what the stream brings for that step; at most `watchdog_ms`: then `is_stuck` is
// set, kInternal as where the GPU failed.
Status WaitFor(const std::function<bool()>& is_there, Ticket ticket, int64_t watchdog_ms,
               cudaStream_t stream, bool* is_stuck);

// The same until the step has ended.
Status WaitForStep(const StepState& state, const AwaitedStep& step, int64_t watchdog_ms,
                   cudaStream_t stream, bool* is_stuck);

// What `debug` asks for before that step.
Status InjectFault(const DebugOptions& debug, Ticket ticket, cudaStream_t stream);

}  // namespace inflight::executor::cuda
