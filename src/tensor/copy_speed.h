// SPDX-License-Identifier: Apache-2.0
// How fast a GPU's memory is filled from pinned host memory, and how fast it is read and written,
// measured by short copies. Builds without CUDA link copy_speed_absent.cc.
#pragma once

#include "tensor/device.h"

namespace inflight {

struct CopySpeed {
  double upload_bytes_per_s = 0;  // pinned host memory to the device, by its copy engine
  double memory_bytes_per_s = 0;  // within the device, bytes read and written
};

// Takes some hundredths of a second, 64 MiB of pinned memory and 256 MiB of the device's while it
// runs. kResourceExhausted where these are not free.
Result<CopySpeed> MeasureCopySpeed(Device& device);

}  // namespace inflight
