// SPDX-License-Identifier: Apache-2.0
// Engines in memory: one aligned range of bytes that holds every slot, and the views into it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "builder/builder.h"
#include "builder/weight_memory.h"
#include "builder/weight_source.h"

namespace inflight::builder {

struct EngineHead {
  model::ModelConfig config;
  model::EngineLimits limits;  // resolved
  std::filesystem::path tokenizer_dir;
  std::string kernel_tuning;         // model::Engine's
  std::vector<int> streamed_layers;  // as of OpenOptions
  WeightPlace place;
};

// A slot and its place in memory of the device, or of a GPU's layers that are streamed in pinned
// host memory.
struct PlacedSlot {
  model::WeightSlot slot;
  std::byte* target = nullptr;
  uint64_t num_bytes = 0;
  bool is_on_host = false;
};

// An engine whose weights lie in new memory, slot after slot (WeightMemory), all written by `fill`.
using FillSlots = std::function<Status(std::span<const PlacedSlot> slots)>;
Result<std::shared_ptr<const model::Engine>> MakeEngine(EngineHead head, Device& device,
                                                        const FillSlots& fill,
                                                        const Progress& progress);

// Memory of the device for weights; kResourceExhausted says how much they take, what is free and
// what helps.
Result<Buffer> AllocateWeights(Device& device, uint64_t num_bytes);

// The same of memory that can be given back.
Result<std::shared_ptr<ReleasableMemory>> AllocateReleasableWeights(Device& device,
                                                                    uint64_t num_bytes);

// "cpu" or "cuda": what an engine file says of the device whose layouts it has.
std::string_view TargetName(DeviceKind device);

// An engine directory, mapped if small and read into 2 MiB pages if large; checksums are compared
// in both cases. docs/reference/artifacts.md has the measurements behind it.
Result<std::shared_ptr<const model::Engine>> OpenEngine(const std::filesystem::path& dir,
                                                        Device& device, const OpenOptions& options,
                                                        const Progress& progress);
// The kind of device whose layouts an engine directory has, by the file of `rank`.
Result<DeviceKind> EngineTarget(const std::filesystem::path& dir, int rank);
// RanksOf of builder.h, of engines.
Result<artifact::RankMapping> EngineRanks(const std::filesystem::path& dir,
                                          const artifact::RankSizes& sizes);

// kFailedPrecondition where `dir` is an engine for another kind of device.
Status CheckOpensOn(DeviceKind device, const std::filesystem::path& dir,
                    const Description& description);
Result<Description> DescribeEngine(const std::filesystem::path& dir, const OpenOptions& options);

// Brings the integer weights of an engine in a GPU's memory, and those of its host_layers, into the
// order of its tensor cores (ops/tensor_core_order.h), where they have one. Files do not have it.
Status OrderForTensorCores(Device& device, model::Engine* engine);

}  // namespace inflight::builder
