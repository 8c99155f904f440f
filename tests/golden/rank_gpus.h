// SPDX-License-Identifier: Apache-2.0
// The GPUs of tests with several ranks: one for each (rank_gpus.cc), or one for all
// (shared_rank_gpus.cc), by which of the two the program is linked with.
#pragma once

#include <vector>

#include "tensor/test_gpu.h"

namespace inflight {

// How many ranks the test's GPUs have room for.
int NumRankGpus();

// Objects for the process, as TestGpu's.
std::vector<Device*> RankGpus(int num_ranks);

}  // namespace inflight

// First line of a test, or of a fixture's SetUp, that needs a GPU for each of so many ranks.
#define NEED_RANK_GPUS(num_ranks)                         \
  do {                                                    \
    NEED_TEST_GPU();                                      \
    if (::inflight::NumRankGpus() < (num_ranks))          \
      GTEST_SKIP() << "needs " << (num_ranks) << " GPUs"; \
  } while (false)
