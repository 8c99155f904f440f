// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most, measured: the denominators of every figure that a benchmark
// prints.
#pragma once

#include <string>

#include "tensor/cpu_pool.h"

namespace inflight::bench {

struct MachineLimits {
  std::string cpu_name;  // /proc/cpuinfo
  int num_threads = 0;   // of the pool
  double read_bytes_per_s =
      0;                  // best of 1..num_threads threads over a working set of at least 1 GiB
  double fp32_flops = 0;  // FMA of the widest instruction set, all threads
  double bf16_flops = 0;  // VDPBF16PS, all threads; 0 where absent
};

// Takes about two seconds.
MachineLimits MeasureLimits(CpuPool& pool);

}  // namespace inflight::bench
