// SPDX-License-Identifier: Apache-2.0
// Stands in for copy_speed.cc in builds without CUDA, where there is no device to measure.
#include "base/check.h"
#include "tensor/copy_speed.h"

namespace inflight {

Result<CopySpeed> MeasureCopySpeed(Device&) { CHECK(false); }

}  // namespace inflight
