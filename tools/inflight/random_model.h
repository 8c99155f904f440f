// SPDX-License-Identifier: Apache-2.0
// A model of random weights in a published shape in place of a directory, for `bench`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/schema.h"
#include "model/config.h"
#include "model/engine.h"
#include "model_options.h"
#include "published_shapes.h"

namespace inflight::tool {

// Declares --shape, which Options have as `shape`.
template <typename Options>
void AddShape(config::Schema<Options>& schema) {
  schema.Add(
      "shape", [](Options& o) -> auto& { return o.shape; },
      "Random weights in this shape instead of a directory.", config::OneOf(ShapeNames()));
}

// Declares those options of ModelOptions `model` that every kind of bench has.
template <typename Options>
void AddModel(config::Schema<Options>& schema) {
  AddDevice(schema, [](Options& o) -> auto& { return o.model.device; });
  AddDType(
      schema, [](Options& o) -> auto& { return o.model.dtype; },
      "Compute in this dtype; auto is the model's own, and bfloat16 with --shape.");
  AddQuantization(schema, [](Options& o) -> auto& { return o.model.quantization; });
  schema.Add(
      "threads", [](Options& o) -> auto& { return o.model.num_threads; },
      "CPU threads; default: the usable cores.", config::Range(1, 1024));
  schema.Add(
      "ops", [](Options& o) -> auto& { return o.model.ops; }, "Operator table by name.");
  AddDeterministic(schema, [](Options& o) -> auto& { return o.model.executor; });
  AddGpuWeights(schema, [](Options& o) -> auto& { return o.model.executor; });
  AddRanks(schema, [](Options& o) -> auto& { return o.model; });
  AddSpeculation(
      schema, [](Options& o) -> auto& { return o.model.executor; },
      [](Options& o) -> auto& { return o.model.draft_model; });
}

// The shape of that name (not ""), in the dtype and quantisation that `options` ask for on
// `device`.
Result<model::ModelConfig> RandomConfig(const std::string& shape, const ModelOptions& options,
                                        DeviceKind device);

// `tune`: builder::Random. Ranks are on `device` and, of GPUs, the ones behind it.
Result<loader::Loaded> OpenRandom(const std::shared_ptr<Device>& device,
                                  const model::ModelConfig& config,
                                  const model::EngineLimits& limits, bool tune,
                                  const ModelOptions& options);

}  // namespace inflight::tool
