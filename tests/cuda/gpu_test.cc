// SPDX-License-Identifier: Apache-2.0
#include "gpu_test.h"

#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "tensor/test_gpu.h"

namespace inflight::gpu {

void GpuTest::SetUp() {
  logging::SetLevel(logging::Level::kWarning);
  NEED_TEST_GPU();
}

Device& GpuTest::device() { return *TestGpu().value(); }

void Die(const Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

void Must(const Status& status) {
  if (!status.ok()) Die(status);
}

}  // namespace inflight::gpu
