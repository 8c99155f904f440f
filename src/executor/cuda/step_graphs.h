// SPDX-License-Identifier: Apache-2.0
// Steps recorded once and replayed with one launch: a graph per shape and variant. A step that has
// no graph of its own shape takes one that it can be filled up to, with rows of the scratch slot.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/log.h"
#include "executor/cuda/step_shape.h"
#include "inflight/status.h"

namespace inflight::executor::cuda {

// What rows of a step ask of sampling. Rows of a sampled step may be greedy. kForward ends before
// sampling.
enum class StepVariant : uint8_t { kGreedy, kSampled, kForward };
inline constexpr int kNumVariants = 3;
inline constexpr std::array kDrawing = {StepVariant::kGreedy, StepVariant::kSampled};

// Steps of decode rows, up to `max_rows`; then steps of a few short prompts, whose kernels would
// take longer to launch than to run, within `max_tokens`. Each kind ascending.
std::vector<StepShape> GraphShapes(int max_rows, int max_tokens);
// `shapes`, then each of them with adapters.
std::vector<StepShape> WithAdapters(std::vector<StepShape> shapes);

class StepGraphs {
 public:
  // Enqueues on `stream` what a step of a shape does.
  using Enqueue = std::function<Status(const StepShape& shape, StepVariant variant)>;

  StepGraphs(std::vector<StepShape> shapes, cudaStream_t stream, Enqueue enqueue);
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  const std::vector<StepShape>& shapes() const { return shapes_; }
  int num_recorded() const { return num_recorded_; }

  // Records graphs of steps without adapters, of those `variants`, for a second or so, or all of
  // them; the others are recorded when they are first used. Logs at `level` what it did.
  Status RecordAtLoad(bool all, logging::Level level,
                      std::span<const StepVariant> variants = kDrawing);

  // Records a graph that is not there yet. Everything it launches must have run before, so that the
  // runtime has loaded it.
  Status Record(size_t shape_idx, StepVariant variant);

  // The first shape that holds `shape`; shapes().size() if none does.
  size_t Find(const StepShape& shape) const;

  // Launches a graph; records it first if it is not there.
  Status Launch(size_t shape_idx, StepVariant variant);

 private:
  cudaStream_t stream_;
  Enqueue enqueue_;
  std::vector<StepShape> shapes_;
  std::array<std::vector<cudaGraphExec_t>, kNumVariants> graphs_;  // [variant][shape], null = none
  int num_recorded_ = 0;
};

// Records graphs of greedy rows of several kinds of passes, for a second or so together, or all of
// them.
Status RecordPasses(std::span<const std::unique_ptr<StepGraphs>> passes, bool all,
                    logging::Level level);

}  // namespace inflight::executor::cuda
