// SPDX-License-Identifier: Apache-2.0
// Which layers' weights stay in a GPU's memory, and which are streamed from pinned host memory
// (model/weight_stream.h). Made before weights are loaded; printed at load and by `inflight
// inspect`.
//
// Streamed layers stand evenly between those that stay, the first layer being one of them: the
// copy of each has the computing of as many layers to hide behind. Layers of one model take equally
// long, of copying and of computing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/memory_plan.h"
#include "inflight/executor.h"
#include "model/engine.h"
#include "tensor/copy_speed.h"

namespace inflight::executor {

struct WeightPlan {
  int num_layers = 0;
  std::vector<int> streamed;    // ascending; empty = all stay
  uint64_t total_bytes = 0;     // of all weights
  uint64_t layer_bytes = 0;     // of one layer
  uint64_t host_bytes = 0;      // pinned
  uint64_t ring_bytes = 0;      // of the device
  uint64_t bytes_per_step = 0;  // that a step copies to the device

  uint64_t device_bytes() const { return total_bytes - host_bytes; }  // without the ring
  // A step copies and reads weights at the same time, each at the speed of its own link; what it
  // reads of the KV cache comes on top.
  double StepSeconds(const CopySpeed& speed) const;
  // A line for people; empty where all stay.
  std::string ToString(const CopySpeed& speed) const;
};

// What a plan is made from.
struct WeightSizes {
  int num_layers = 0;
  uint64_t total_bytes = 0;
  uint64_t layer_bytes = 0;
};

// `num_resident` layers stay, or all: the ring of fewer streamed ones than it has buffers would
// take as much memory as they do.
WeightPlan PlanOfResident(const WeightSizes& sizes, int num_resident);

// As `options.gpu_weights` asks. As many as fit are those that leave room for the rest of the
// memory plan with max_kv_tokens, or without that option with a sequence of full length or a tenth
// of `free_bytes`, if that is less; the last argument is PlanMemory's. kInvalidArgument and
// kUnimplemented name gpu_weights_percent; errors of PlanMemory where not even streaming all layers
// helps.
Result<WeightPlan> PlanWeights(const model::ModelConfig& config, const model::EngineLimits& limits,
                               DeviceKind device, const WeightSizes& sizes,
                               const ExecutorOptions& options, uint64_t free_bytes,
                               uint64_t draft_kv_bytes_per_block = 0);

}  // namespace inflight::executor
