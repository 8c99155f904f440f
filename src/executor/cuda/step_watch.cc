// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/step_watch.h"

#include <fmt/format.h>

#include <chrono>

#include "base/spin_pause.h"
#include "executor/cuda/step_kernels.h"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using inflight::cuda::ToStatus;

// Between two questions to the runtime whether the stream has failed. It takes a lock and a
// microsecond, and most steps end before the first.
constexpr int64_t kQueryIntervalNs = 10'000'000;
constexpr int kPollsPerClock = 64;
constexpr int kStuckSeconds = 60;  // of an injected fault

}  // namespace

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Polls: waking up costs a small machine more than many steps wait.
Status WaitFor(const std::function<bool()>& is_there, Ticket ticket, int64_t watchdog_ms,
               cudaStream_t stream, bool* is_stuck) {
  int64_t start_ns = 0;
  int64_t queried_ns = 0;
  for (int polls = 1; !is_there(); ++polls) {
    SpinPause();
    if (polls % kPollsPerClock != 0) continue;
    const int64_t now_ns = NowNs();
    if (start_ns == 0) start_ns = queried_ns = now_ns;
    if (now_ns - queried_ns < kQueryIntervalNs) continue;
    queried_ns = now_ns;
    const cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaErrorNotReady) {
      if (now_ns - start_ns < watchdog_ms * 1'000'000) continue;
      *is_stuck = true;
      return Internal(
          fmt::format("step {}: the GPU has not finished it within {} ms; restart the "
                      "server (and reset the GPU if it stays busy)",
                      ticket, watchdog_ms));
    }
    if (error != cudaSuccess)
      return ToStatus(error, fmt::format("step {}: the GPU failed", ticket));
    if (!is_there())  // all ran, and the counter did not move
      return Internal(fmt::format("step {}: ended without its results", ticket));
  }
  return Status::Ok();
}

Status WaitForStep(const StepState& state, const AwaitedStep& step, int64_t watchdog_ms,
                   cudaStream_t stream, bool* is_stuck) {
  return WaitFor([&] { return state.num_done() > step.step; }, step.ticket, watchdog_ms, stream,
                 is_stuck);
}

Status InjectFault(const DebugOptions& debug, Ticket ticket, cudaStream_t stream) {
  if (ticket != debug.fault_step) return Status::Ok();
  switch (debug.fault) {
    case Fault::kNone:
      return Status::Ok();
    case Fault::kLaunch:
      return LaunchBadly(stream);
    case Fault::kTrap:
      return LaunchTrap(stream);
    case Fault::kStuck:
      return LaunchSpin(kStuckSeconds, stream);
  }
  return Status::Ok();
}

}  // namespace inflight::executor::cuda
