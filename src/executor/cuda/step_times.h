// SPDX-License-Identifier: Apache-2.0
// Where the time of steps went, for INFLIGHT_CUDA_TIMES=1: by the GPU's own clock, and the host's.
#pragma once

#include <cstdint>
#include <vector>

namespace inflight::executor::cuda {

struct StepTime {
  int num_rows = 0;
  int num_tokens = 0;
  int64_t begin_ns = 0, end_ns = 0;  // by the GPU's clock: first and last kernel
  int64_t launch_ns = 0;             // that Launch took on the host
  int64_t wait_ns = 0;               // that Collect waited; 0 = the step had ended before
};

class StepTimes {
 public:
  explicit StepTimes(bool is_on);
  ~StepTimes();  // logs medians for each number of rows and tokens

  bool is_on() const { return is_on_; }
  void Add(const StepTime& time);

 private:
  const bool is_on_;
  std::vector<StepTime> times_;  // the first kMaxTimes steps
};

}  // namespace inflight::executor::cuda
