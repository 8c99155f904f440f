// SPDX-License-Identifier: Apache-2.0
// A driver that is older than the CUDA runtime of this program: a library of that name which says
// that it supports CUDA 12.0 (old_driver.cc) stands in for it. Needs no GPU.
#include <cuda.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tensor/cuda_runtime_calls.h"

namespace inflight::cuda {
namespace {

TEST(OldDriverTest, BothVersionsAndTheRemedyAreNamed) {
  const auto probed = Probe(0);
  ASSERT_FALSE(probed.ok());
  EXPECT_EQ(probed.status().ToString(),
            fmt::format("UNAVAILABLE: device: got cuda, the NVIDIA driver supports CUDA 12.0 and "
                        "this program needs {}.{}; update the driver, or use --device cpu",
                        CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10));
}

}  // namespace
}  // namespace inflight::cuda
