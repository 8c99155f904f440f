// SPDX-License-Identifier: Apache-2.0
#include "executor/local_backend.h"

#include <gtest/gtest.h>

namespace inflight::executor {
namespace {

TEST(CheckDeviceTest, AGpuRefusesDeterminismByNameAndReason) {
  const ExecutorOptions deterministic = {.deterministic = true};
  EXPECT_TRUE(CheckDevice(deterministic, DeviceKind::kCpu).ok());
  EXPECT_TRUE(CheckDevice({}, DeviceKind::kCuda).ok());
  const Status refused = CheckDevice(deterministic, DeviceKind::kCuda);
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(refused.message(),
            "deterministic: not supported on a GPU, where kernels are chosen by the number of rows "
            "in a step and attention is split by the batch; use --device cpu, or leave it out");
}

}  // namespace
}  // namespace inflight::executor
