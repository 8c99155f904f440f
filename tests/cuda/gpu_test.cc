// SPDX-License-Identifier: Apache-2.0
#include "gpu_test.h"

#include <cstdio>
#include <cstdlib>

#include "base/log.h"

namespace inflight::gpu {
namespace {

// Never destroyed: the runtime ends before static objects do.
const Result<std::unique_ptr<Device>>& Gpu() {
  static const auto* gpu = new Result<std::unique_ptr<Device>>(Device::Cuda(0));
  return *gpu;
}

}  // namespace

void GpuTest::SetUp() {
  logging::SetLevel(logging::Level::kWarning);
  if (!Gpu().ok()) GTEST_SKIP() << Gpu().status().message();
}

Device& GpuTest::device() { return *Gpu().value(); }

void Die(const Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

void Must(const Status& status) {
  if (!status.ok()) Die(status);
}

}  // namespace inflight::gpu
