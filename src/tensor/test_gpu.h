// SPDX-License-Identifier: Apache-2.0
// The GPU of tests. CI's machines have none: there the tests that need one are compiled, started
// and skipped with this reason. Where INFLIGHT_TEST_GPU=1 says that there is one, they fail
// instead, so that a run on a GPU machine cannot pass by skipping (docs/testing.md).
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "tensor/device.h"

namespace inflight {

// The first GPU, or why there is none; one object for the process, never destroyed, since the
// runtime ends before static objects do.
inline const Result<std::unique_ptr<Device>>& TestGpu() {
  static const auto* gpu = new Result<std::unique_ptr<Device>>(Device::Cuda(0));
  return *gpu;
}

inline bool GpuIsExpected() {
  const char* const expected = std::getenv("INFLIGHT_TEST_GPU");
  return expected != nullptr && std::string_view(expected) == "1";
}

}  // namespace inflight

// First line of a test, or of a fixture's SetUp, that needs a GPU.
#define NEED_TEST_GPU()                                                                         \
  do {                                                                                          \
    if (::inflight::TestGpu().ok()) break;                                                      \
    if (::inflight::GpuIsExpected())                                                            \
      GTEST_FAIL() << "INFLIGHT_TEST_GPU=1, but " << ::inflight::TestGpu().status().message();  \
    GTEST_SKIP() << "needs an NVIDIA GPU, which CI's machines do not have; run it on one with " \
                    "INFLIGHT_TEST_GPU=1: "                                                     \
                 << ::inflight::TestGpu().status().message();                                   \
  } while (false)
