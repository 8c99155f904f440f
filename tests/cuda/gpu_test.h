// SPDX-License-Identifier: Apache-2.0
// The fixture of the executor's tests on a GPU (tensor/test_gpu.h: what happens without one).
#pragma once

#include <gtest/gtest.h>

#include "tensor/device.h"

namespace inflight::gpu {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override;

  static Device& device();  // the first GPU, one object for the process
};

// The value, or the end of the program with the error's words.
template <typename T>
T Must(Result<T> result);
void Must(const Status& status);

}  // namespace inflight::gpu

namespace inflight::gpu {

[[noreturn]] void Die(const Status& status);

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) Die(result.status());
  return *std::move(result);
}

}  // namespace inflight::gpu
