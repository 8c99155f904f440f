// SPDX-License-Identifier: Apache-2.0
// Device time by operator, for `inflight bench --profile`: FindOps(device, shape, "cuda/profiled")
// is the best CUDA table with two events around each call. Its steps cannot be captured into
// graphs.
//
// Threads: one executor at a time; ResetProfile and TakeProfile while it is idle.
#pragma once

#include <string>
#include <vector>

namespace inflight::ops {

struct ProfileEntry {
  std::string name;         // of the operator: "attention"
  bool is_prefill = false;  // of steps with prefill rows
  long calls = 0;
  double device_ms = 0;
};

void ResetProfile();
// What ran since ResetProfile, the dearest first; waits for the device. Empty without CUDA.
std::vector<ProfileEntry> TakeProfile();

}  // namespace inflight::ops
