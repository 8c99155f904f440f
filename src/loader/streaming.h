// SPDX-License-Identifier: Apache-2.0
// Which layers of a model stay in a GPU's memory (executor/weight_plan.h), decided before its
// weights are loaded, and what speed that leaves.
#pragma once

#include <string>

#include "executor/local_backend.h"
#include "executor/weight_plan.h"
#include "inflight/executor.h"
#include "model/engine.h"
#include "tensor/copy_speed.h"
#include "tensor/device.h"

namespace inflight::loader {

struct StreamingPlan {
  executor::WeightPlan weights;
  CopySpeed copy_speed;  // measured where weights are streamed

  std::string ToString() const { return weights.ToString(copy_speed); }  // empty where none are
};

// As `options.gpu_weights` says and the device's free memory allows, less what a draft model takes,
// its weights among `draft.bytes`. Errors as of executor::PlanWeights.
Result<StreamingPlan> PlanStreaming(const model::ModelConfig& config,
                                    const model::EngineLimits& limits, Device& device,
                                    const executor::WeightSizes& sizes,
                                    const ExecutorOptions& options,
                                    const executor::DraftModelCost& draft = {});

// Of a plan that is carried out.
void LogStreaming(const StreamingPlan& plan);

}  // namespace inflight::loader
