// SPDX-License-Identifier: Apache-2.0
// The GPUs of tests with several ranks: the machine's own, or the first one for all ranks where it
// has fewer and kernels do not overlap (INFLIGHT_CUDA_OVERLAP=0).
#pragma once

#include <memory>
#include <vector>

#include "ops/cuda/peers.h"
#include "tensor/test_gpu.h"

namespace inflight {

inline int NumTestGpus() {
  static const int num = [] {
    int found = 0;
    while (found < 8 && Device::Cuda(found).ok()) ++found;
    return found;
  }();
  return num;
}

// Objects for the process, as TestGpu's.
inline std::vector<Device*> RankGpus(int num_ranks) {
  static auto* gpus = new std::vector<Device*>();
  for (int i = static_cast<int>(gpus->size()); i < NumTestGpus(); ++i)
    gpus->push_back(Device::Cuda(i)->release());
  std::vector<Device*> of_ranks;
  for (int rank = 0; rank < num_ranks; ++rank)
    of_ranks.push_back(NumTestGpus() >= num_ranks ? (*gpus)[static_cast<size_t>(rank)]
                                                  : gpus->front());
  return of_ranks;
}

}  // namespace inflight

// First line of a test, or of a fixture's SetUp, that needs GPUs for so many ranks.
#define NEED_RANK_GPUS(num_ranks)                                                                \
  do {                                                                                           \
    NEED_TEST_GPU();                                                                             \
    if (::inflight::NumTestGpus() < (num_ranks) && ::inflight::ops::cuda::KernelsOverlap())      \
      GTEST_SKIP() << "needs " << (num_ranks) << " GPUs, or INFLIGHT_CUDA_OVERLAP=0 to run all " \
                   << "ranks on one";                                                            \
  } while (false)
