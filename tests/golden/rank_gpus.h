// SPDX-License-Identifier: Apache-2.0
// The GPUs of tests with several ranks.
#pragma once

#include <memory>
#include <vector>

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
    of_ranks.push_back((*gpus)[static_cast<size_t>(rank)]);
  return of_ranks;
}

}  // namespace inflight

// First line of a test, or of a fixture's SetUp, that needs a GPU for each of so many ranks.
#define NEED_RANK_GPUS(num_ranks)                         \
  do {                                                    \
    NEED_TEST_GPU();                                      \
    if (::inflight::NumTestGpus() < (num_ranks))          \
      GTEST_SKIP() << "needs " << (num_ranks) << " GPUs"; \
  } while (false)
