// SPDX-License-Identifier: Apache-2.0
// Engines in memory: one aligned range of bytes that holds every slot, and the views into it.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "builder/builder.h"
#include "builder/weight_source.h"

namespace inflight::builder {

struct EngineHead {
  model::ModelConfig config;
  model::EngineLimits limits;  // resolved
  std::filesystem::path tokenizer_dir;
  std::string kernel_tuning;  // model::Engine's
};

// A slot and its place in memory of the device.
struct PlacedSlot {
  model::WeightSlot slot;
  std::byte* target = nullptr;
  uint64_t num_bytes = 0;
};

// An engine whose weights lie in one new buffer of the device, slot after slot, all written by
// `fill`.
using FillSlots = std::function<Status(std::span<const PlacedSlot> slots)>;
Result<std::shared_ptr<const model::Engine>> MakeEngine(EngineHead head, Device& device,
                                                        const FillSlots& fill,
                                                        const Progress& progress);

// Memory of the device for weights; kResourceExhausted says how much they take, what is free and
// what helps.
Result<Buffer> AllocateWeights(Device& device, uint64_t num_bytes);

// Bytes of a model's weights as MakeEngine lays them out.
uint64_t EngineBytes(const model::ModelConfig& config, DeviceKind device);

// "cpu" or "cuda": what an engine file says of the device whose layouts it has.
std::string_view TargetName(DeviceKind device);

// An engine directory, mapped if small and read into 2 MiB pages if large; checksums are compared
// in both cases. docs/reference/artifacts.md has the measurements behind it.
Result<std::shared_ptr<const model::Engine>> OpenEngine(const std::filesystem::path& dir,
                                                        Device& device, const OpenOptions& options,
                                                        const Progress& progress);
// The kind of device whose layouts an engine directory has.
Result<DeviceKind> EngineTarget(const std::filesystem::path& dir);

// kFailedPrecondition where `dir` is an engine for another kind of device.
Status CheckOpensOn(DeviceKind device, const std::filesystem::path& dir,
                    const Description& description);
Result<Description> DescribeEngine(const std::filesystem::path& dir, const OpenOptions& options);

}  // namespace inflight::builder
