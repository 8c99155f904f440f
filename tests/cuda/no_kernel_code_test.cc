// SPDX-License-Identifier: Apache-2.0
// A program that was compiled for another GPU than the one it finds: its kernels are built for
// compute capability 7.5 (CMakeLists.txt), which no GPU that is taken has.
#include <gmock/gmock.h>

#include "tensor/cuda_runtime_calls.h"
#include "tensor/test_gpu.h"

namespace inflight::cuda {
namespace {

TEST(NoKernelCodeTest, AGpuThatTheProgramHasNoCodeForIsRefusedAtOnce) {
  const auto probed = Probe(0);
  ASSERT_FALSE(probed.ok());
  if (probed.status().code() == StatusCode::kUnavailable && !GpuIsExpected())
    GTEST_SKIP() << probed.status().message();
  EXPECT_EQ(probed.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(probed.status().message(),
              testing::MatchesRegex("device: cuda:0 is a .* of compute capability [0-9]+\\.[0-9], "
                                    "for which this program holds no code; build it with "
                                    "-DCMAKE_CUDA_ARCHITECTURES=[0-9]+, or use --device cpu"));
}

}  // namespace
}  // namespace inflight::cuda
