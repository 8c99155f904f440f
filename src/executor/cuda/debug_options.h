// SPDX-License-Identifier: Apache-2.0
// What environment variables ask of a CUDA backend (cuda_backend.h lists them); for debugging and
// for tests of faults.
#pragma once

#include <cstdint>

namespace inflight::executor::cuda {

enum class Fault : uint8_t { kNone, kLaunch, kTrap, kStuck };

struct DebugOptions {
  bool use_graphs = true;
  bool records_all = false;  // graphs at load, however long it takes
  bool log_times = false;
  bool ranks_share_gpu = false;  // may; ops/cuda/peers.h
  bool ranks_use_nccl = false;   // also where they reach each other's memory
  bool stages_are_told = false;  // there: rows in no graph, hosts tell what is drawn, as with NCCL
  float forced_acceptance = -1;  // share of drafts that are accepted whatever they are; -1: no
  int64_t watchdog_ms = 30'000;
  Fault fault = Fault::kNone;
  int64_t fault_step = 0;

  // Values that cannot be read are warned of and ignored.
  static DebugOptions FromEnvironment();
};

}  // namespace inflight::executor::cuda
