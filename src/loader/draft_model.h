// SPDX-License-Identifier: Apache-2.0
// What OpenOptions::draft_model names: a smaller model, or a head of EAGLE.
#pragma once

#include <optional>

#include "builder/builder.h"
#include "executor/local_backend.h"
#include "inflight/open.h"
#include "model/eagle_head.h"

namespace inflight::loader {

struct DraftPlan {
  DraftSource source = DraftSource::kAuto;  // of options.executor where nothing is named
  executor::DraftModelCost cost;            // with the weights
  uint64_t weight_bytes = 0;                // of that
  std::optional<model::EagleConfig> eagle;

  const model::EagleConfig* eagle_config() const { return eagle ? &*eagle : nullptr; }
  // Whether a rank of a model on GPUs has it: a model those of the first stage, a head those of the
  // last one.
  bool IsOn(const model::RankPart& part) const {
    return eagle ? part.is_last_stage() : part.is_first_stage();
  }
  // Beside that part of the model, on GPUs.
  executor::DraftModelCost CostOf(const model::RankPart& part) const {
    return IsOn(part) ? cost : executor::DraftModelCost();
  }
};

// Without reading weights, for a model of `config` and `limits`. `open` is that of the model.
// Errors name draft_model: what else proposes tokens, a head of another model, or one that reads
// what stages on GPUs do not have beside it.
Result<DraftPlan> PlanDrafts(const model::ModelConfig& config, const model::EngineLimits& limits,
                             const builder::OpenOptions& open, const OpenOptions& options);

// The weights, in the device's memory, and who proposes; of stages on GPUs the first one alone has
// a model's, the last one alone a head's. A model is quantised as its own directory says, a head
// has the dtype of `engine`. Errors as above.
struct OpenedDrafts {
  DraftSource source = DraftSource::kAuto;
  executor::DraftWeights weights;
};
Result<OpenedDrafts> OpenDrafts(const model::Engine& engine, Device& device,
                                const OpenOptions& options);

}  // namespace inflight::loader
