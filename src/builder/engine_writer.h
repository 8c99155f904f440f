// SPDX-License-Identifier: Apache-2.0
// Weights from their source into an engine file.
#pragma once

#include <filesystem>
#include <functional>

#include "builder/builder.h"
#include "builder/engine_memory.h"
#include "builder/weight_source.h"

namespace inflight::builder {

// Writes all slots in the stored form of `target`. Rows that are quantised on the way are so by
// `gpu` where one is given and `target` is CUDA, else by the host; the bits are the same. Holds a
// few slots at a time, so that building needs no second copy of the model; a GPU without room for
// them is left aside, with a note in the log.
Status WriteEngineFile(const WeightSource& source, const std::filesystem::path& path,
                       DeviceKind target, Device& host, Device* gpu, const Progress& progress);

// Makes one slot in the stored form of the target, in host memory.
using MakeSlot = std::function<Status(const PlacedSlot&)>;

// Writes the slots that `make` makes, one after the other.
Status WriteEngineFile(const model::ModelConfig& config, const std::filesystem::path& path,
                       DeviceKind target, Device& host, const MakeSlot& make);

}  // namespace inflight::builder
