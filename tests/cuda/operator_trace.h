// SPDX-License-Identifier: Apache-2.0
// What each operator of a forward pass wrote, so that two devices can be compared step by step.
#pragma once

#include <string>
#include <vector>

#include "ops/backend.h"

namespace inflight::gpu {

struct TracedOutput {
  std::string name;  // "layer 1 attention"
  int64_t num_rows = 0;
  int64_t width = 0;
  std::vector<float> values;  // [num_rows, width], scales applied
};

// A table whose operators call `inner`'s, wait, and append what they wrote to `trace`. One at a
// time in a process; both outlive its use.
ops::OpTable Traced(const ops::OpTable& inner, std::vector<TracedOutput>* trace);

// A line per operator: the largest difference, its place and both values, the relative RMS
// difference, NaNs. `worst` is the largest relative RMS difference, infinite where a NaN stands or
// shapes differ; `first_bad` the first line that exceeds `bound`.
struct Comparison {
  std::string report;
  std::string first_bad;
  double worst = 0;
};
Comparison Compare(const std::vector<TracedOutput>& expected,
                   const std::vector<TracedOutput>& actual, double bound);

}  // namespace inflight::gpu
