// SPDX-License-Identifier: Apache-2.0
// What Open and Inspect of include/inflight/open.h do, with the parts that embedding programs do
// not see: benchmarks read a model's shapes, `inspect` prints its whole plan.
//
// Every executor of the product is made here, and its limits and its memory are planned here: of a
// model that is opened by the same code as of one that is only looked at.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "builder/builder.h"
#include "executor/memory_plan.h"
#include "inflight/open.h"
#include "model/engine.h"
#include "tensor/device.h"

namespace inflight::loader {

// What would be opened.
struct Plan {
  std::shared_ptr<Device> device;
  builder::Description description;
  executor::MemoryPlan memory;
  ModelInfo info;

  std::string ToString() const;  // memory and limits, a line per part, for people
};
// Errors as of Inspect. Takes nothing of the device's memory.
Result<Plan> MakePlan(const std::filesystem::path& directory, const OpenOptions& options);

// A model that runs. The executor holds device and engine.
struct Loaded {
  std::shared_ptr<Device> device;
  std::shared_ptr<const model::Engine> engine;
  ModelInfo info;
  std::shared_ptr<Executor> executor;
};
// Open without the tokenizer.
Result<Loaded> Load(const std::filesystem::path& directory, const OpenOptions& options);
// The part behind the weights, for engines that come from no directory. Of `options` it reads `ops`
// and `executor`. Who calls it lets go of the engine before the device that its memory is of.
Result<Loaded> Start(const std::shared_ptr<const model::Engine>& engine,
                     const std::shared_ptr<Device>& device, const OpenOptions& options);

// What a model for `device` validates requests by once its memory is planned; the same for a plan
// as for an executor that runs.
Result<ExecutorLimits> LimitsOf(const executor::MemoryPlan& memory,
                                const model::ModelConfig& config, const model::EngineLimits& limits,
                                const ExecutorOptions& options);

// As the builder takes them. kInvalidArgument names the field.
Result<builder::OpenOptions> BuilderOptions(const OpenOptions& options);

// The device that `directory` is opened on.
Result<std::shared_ptr<Device>> DeviceFor(const std::filesystem::path& directory,
                                          const OpenOptions& options);

}  // namespace inflight::loader
