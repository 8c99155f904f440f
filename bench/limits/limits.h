// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most, measured: the denominators of every figure that a benchmark
// prints. Measured in the benchmark's own run, since processors differ and neighbours on the socket
// come and go (docs/reference/kernels.md, "Limits of the hardware").
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tensor/cpu_pool.h"

namespace inflight::bench {

struct ThreadLimits {
  int num_threads = 0;
  double read_bytes_per_s = 0;
  double fp32_flops = 0;
  double bf16_flops = 0;
  double int8_ops = 0;
};

struct MachineLimits {
  std::string cpu_name;  // /proc/cpuinfo
  int num_threads = 0;   // of the pool
  // Best of 1..num_threads threads over a working set of at least 1 GiB.
  double read_bytes_per_s = 0;
  double fp32_flops = 0;                 // FMA of the widest instruction set, all threads
  double bf16_flops = 0;                 // AMX, else VDPBF16PS, all threads; 0 where absent
  double int8_ops = 0;                   // AMX, else VPDPBUSD, all threads; 0 where absent
  std::vector<ThreadLimits> by_threads;  // with 1, 2, 4, ... and all threads
};

// Takes about two seconds, and 1 GiB of memory while it runs.
MachineLimits MeasureLimits(CpuPool& pool);

// Read bandwidth alone, by all threads: the probe before and after a measurement, which is set
// against their mean.
double MeasureReadBytesPerS(CpuPool& pool);

}  // namespace inflight::bench
