// SPDX-License-Identifier: Apache-2.0
// Stands in for gpu_limits.cu in builds without CUDA, which have no CUDA device to pass.
#include "base/check.h"
#include "bench/limits/gpu_limits.h"

namespace inflight::bench {

Result<GpuLimits> MeasureGpuLimits(Device&) { CHECK(false); }

}  // namespace inflight::bench
