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
#include <vector>

#include "builder/builder.h"
#include "executor/backend.h"
#include "executor/local_backend.h"
#include "executor/memory_plan.h"
#include "inflight/open.h"
#include "loader/recording.h"
#include "loader/streaming.h"
#include "model/engine.h"
#include "tensor/device.h"

namespace inflight::loader {

// What would be opened.
struct Plan {
  std::shared_ptr<Device> device;  // of the first rank
  builder::Description description;
  StreamingPlan streaming;
  executor::MemoryPlan memory;              // of the first rank
  std::vector<executor::MemoryPlan> ranks;  // of each; one where the model is not split
  ModelInfo info;

  std::string ToString() const;  // memory and limits, a line per part, for people
};
// Errors as of Inspect. Keeps nothing of the device's memory; where weights are to be streamed, it
// measures how fast they are copied.
Result<Plan> MakePlan(const std::filesystem::path& directory, const OpenOptions& options);

// By what a model is computed.
struct ChosenKernels {
  std::string table;   // OpTable::name: "cpu/avx2"
  std::string device;  // "cpu", or what the GPU calls itself: "NVIDIA H200"
};

// A model that runs. The executor holds device and engine.
struct Loaded {
  std::shared_ptr<Device> device;               // of the first rank
  std::shared_ptr<const model::Engine> engine;  // likewise
  ModelInfo info;
  ChosenKernels kernels;
  std::shared_ptr<Executor> executor;
};
// Open without the tokenizer. Errors of `recording` name the file.
Result<Loaded> Load(const std::filesystem::path& directory, const OpenOptions& options,
                    const Recording& recording = {});

// The same without an executor, for who steps one itself.
struct LoadedBackend {
  std::vector<std::shared_ptr<Device>> devices;  // of each rank
  ExecutorOptions options;                       // for it: drafts are decided
  std::unique_ptr<executor::Backend> backend;
};
Result<LoadedBackend> LoadBackend(const std::filesystem::path& directory,
                                  const OpenOptions& options);
// The part behind the weights, for engines that come from no directory. Of `options` it reads `ops`
// and `executor`, of which gpu_weights is decided with the engine (PlanStreaming), and whose
// DraftSource::kModel and kEagle need `draft`. Who calls it lets go of the engines before the
// device that their memory is of.
Result<Loaded> Start(const std::shared_ptr<const model::Engine>& engine,
                     const std::shared_ptr<Device>& device, const OpenOptions& options,
                     const executor::DraftWeights& draft = {});
// Likewise of ranks, each on its place of `devices`.
Result<Loaded> StartRanks(const std::vector<std::shared_ptr<const model::Engine>>& engines,
                          const std::vector<std::shared_ptr<Device>>& devices,
                          const OpenOptions& options);

// What a model for `device` validates requests by once its memory is planned; the same for a plan
// as for an executor that runs.
Result<ExecutorLimits> LimitsOf(const executor::MemoryPlan& memory,
                                const model::ModelConfig& config, const model::EngineLimits& limits,
                                const ExecutorOptions& options);

// The sizes of ranks that are asked for.
artifact::RankSizes RankSizesOf(const OpenOptions& options);

// As the builder takes them for `directory`, with the ranks that it runs on. kInvalidArgument names
// the field; errors as of builder::RanksOf.
Result<builder::OpenOptions> BuilderOptions(const std::filesystem::path& directory,
                                            const OpenOptions& options);

// The device that `rank` opens its part of `directory` on.
Result<std::shared_ptr<Device>> DeviceFor(const std::filesystem::path& directory,
                                          const OpenOptions& options, int rank = 0);
// Those of all ranks: one CPU for all, or a GPU for each. Errors as of Devices::ForGpu.
Result<std::vector<std::shared_ptr<Device>>> DevicesFor(const std::filesystem::path& directory,
                                                        const OpenOptions& options, int num_ranks);

}  // namespace inflight::loader
