// SPDX-License-Identifier: Apache-2.0
// All ranks on one GPU (ops/cuda/peers.h). Before anything asks the CUDA runtime the environment is
// set so that ranks that wait for each other do not wait for good: no kernel is started early, all
// code is loaded at the start, and streams have queues of their own. A rank that waits for longer
// ends by the watchdog.
#include <cstdlib>

#include "rank_gpus.h"

namespace inflight {
namespace {

[[maybe_unused]] const bool is_set = [] {
  setenv("INFLIGHT_CUDA_SHARED_GPU", "1", 1);
  setenv("INFLIGHT_CUDA_OVERLAP", "0", 1);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  return true;
}();

}  // namespace

int NumRankGpus() { return 4; }

std::vector<Device*> RankGpus(int num_ranks) {
  return std::vector<Device*>(static_cast<size_t>(num_ranks), TestGpu()->get());
}

}  // namespace inflight
