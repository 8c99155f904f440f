// SPDX-License-Identifier: Apache-2.0
// Decode steps recorded once and replayed with one launch: a graph per number of rows and variant.
// A step of fewer rows takes the next larger graph, whose other rows are the scratch slot's.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <functional>
#include <vector>

#include "inflight/status.h"

namespace inflight::executor::cuda {

// What rows of a step ask of sampling. Rows of a sampled step may be greedy.
enum class StepVariant : uint8_t { kGreedy, kSampled };
inline constexpr int kNumVariants = 2;

class StepGraphs {
 public:
  // Enqueues on `stream` what a step of `num_rows` decode rows does.
  using Enqueue = std::function<Status(int num_rows, StepVariant variant)>;

  StepGraphs(int max_rows, cudaStream_t stream, Enqueue enqueue);
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // Sizes, ascending; the last is max_rows.
  const std::vector<int>& sizes() const { return sizes_; }

  // Records a graph that is not there yet. Everything it launches must have run before, so that the
  // runtime has loaded it.
  Status Record(int size, StepVariant variant);

  // Launches a step of `num_rows` rows; records its graph first if it is not there.
  Status Launch(int num_rows, StepVariant variant);

  int num_recorded() const { return num_recorded_; }

 private:
  size_t IndexOf(int num_rows) const;  // of the smallest size that holds them

  cudaStream_t stream_;
  Enqueue enqueue_;
  std::vector<int> sizes_;
  std::array<std::vector<cudaGraphExec_t>, kNumVariants> graphs_;  // [variant][size], null = none
  int num_recorded_ = 0;
};

}  // namespace inflight::executor::cuda
