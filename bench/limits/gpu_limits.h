// SPDX-License-Identifier: Apache-2.0
// What this GPU can do at most, measured: the denominators of every figure that a benchmark prints
// (docs/reference/kernels.md). Builds without CUDA link gpu_limits_absent.cc.
#pragma once

#include <string>

#include "tensor/device.h"

namespace inflight::bench {

struct GpuLimits {
  std::string gpu_name;
  int driver_version = 0;         // 13000 = CUDA 13.0
  double read_bytes_per_s = 0;    // sum of 4 GiB
  double copy_bytes_per_s = 0;    // device to device, bytes read and written
  double upload_bytes_per_s = 0;  // pinned host memory to device
  double f16_flops = 0;           // product of 8192 rows with [28672, 4096], bfloat16
  double fp8_flops = 0;           // the same of e4m3 with unit scales; 0 below capability 8.9
  double graph_node_s = 0;        // a dependent empty kernel in a CUDA graph
};

// Medians over CUDA graphs of random data, after a second of warm-up. Takes about three seconds and
// 9 GiB of the device's memory while it runs.
Result<GpuLimits> MeasureGpuLimits(Device& device);

}  // namespace inflight::bench
