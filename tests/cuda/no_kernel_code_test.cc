// SPDX-License-Identifier: Apache-2.0
// A program that was compiled for another GPU than the one it finds: its kernels are built for
// compute capability 7.5 (CMakeLists.txt), which no GPU that is taken has.
#include <gmock/gmock.h>

#include "tensor/cuda_runtime_calls.h"
#include "tensor/kernel_code.h"
#include "tensor/test_gpu.h"

namespace inflight::cuda {
namespace {

DeviceProperties Gpu(int major, int minor) {
  return {.index = 1, .name = "Card", .compute_major = major, .compute_minor = minor};
}

TEST(NoKernelCodeTest, WhatIsRefusedSaysWhatToBuildFor) {
  EXPECT_EQ(CheckCapability(Gpu(8, 0), /*has_kernel_code=*/true), Status::Ok());
  EXPECT_EQ(CheckCapability(Gpu(8, 9), /*has_kernel_code=*/false),
            FailedPrecondition("device: cuda:1 is a Card of compute capability 8.9, for which this "
                               "program holds no code; build it with "
                               "-DCMAKE_CUDA_ARCHITECTURES=89, or use --device cpu"));
  EXPECT_EQ(CheckCapability(Gpu(7, 5), /*has_kernel_code=*/true),
            FailedPrecondition("device: cuda:1 is a Card of compute capability 7.5, at least 8.0 "
                               "is needed"));
}

// Where no GPU is, too: none runs this program's kernels.
TEST(NoKernelCodeTest, NoGpuThatIsTakenRunsTheseKernels) { EXPECT_FALSE(HasKernelCode()); }

TEST(NoKernelCodeTest, AGpuThatTheProgramHasNoCodeForIsRefusedAtOnce) {
  const auto probed = Probe(0);
  ASSERT_FALSE(probed.ok());
  if (probed.status().code() == StatusCode::kUnavailable && !GpuIsExpected())
    GTEST_SKIP() << "needs an NVIDIA GPU to be refused, which CI's machines do not have (the tests "
                    "above run there); run it on one with INFLIGHT_TEST_GPU=1: "
                 << probed.status().message();
  EXPECT_EQ(probed.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(probed.status().message(), testing::HasSubstr("this program holds no code"));
}

}  // namespace
}  // namespace inflight::cuda
