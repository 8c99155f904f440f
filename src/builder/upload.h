// SPDX-License-Identifier: Apache-2.0
// Weights from their files to a GPU: all threads of the host pool read pieces of them into pinned
// memory, and the GPU converts and quantises what is stored in another dtype.
#pragma once

#include <span>

#include "builder/engine_memory.h"
#include "builder/weight_source.h"

namespace inflight::builder {

// Writes every slot in its stored form (row-major) to its place in memory of the CUDA device
// `device`. The bits are those of PackSlot.
Status UploadSlots(const WeightSource& source, std::span<const PlacedSlot> slots, Device& device,
                   const Progress& progress);

}  // namespace inflight::builder
