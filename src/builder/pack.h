// SPDX-License-Identifier: Apache-2.0
// Weights from their source into the form that engines hold (model/weight_slots.h).
#pragma once

#include <functional>

#include "builder/weight_source.h"
#include "tensor/device.h"

namespace inflight::builder {

// Calls `fill(row, num_rows, out)` for each panel of a matrix, on the pool's threads, and packs
// what it wrote: rows of the slot's stored dtype (StoredDType), row-major. `target` is host memory
// of StoredBytes for `device`.
using FillRows = std::function<void(int64_t row, int64_t num_rows, void* out)>;
void PackMatrix(const model::ModelConfig& config, const model::WeightSlot& slot, DeviceKind device,
                const FillRows& fill, CpuPool& pool, std::byte* target);

// Rows [row, row + num_rows) of a slot in the stored form where that is row-major; a vector's
// elements are its rows.
void PackRows(const WeightSource& source, const model::WeightSlot& slot, int64_t row,
              int64_t num_rows, std::byte* target);

// Writes one slot in its stored form to `target`. Every value passes through the model's dtype, so
// that a model is the same whether it came through a checkpoint or not.
void PackSlot(const WeightSource& source, const model::WeightSlot& slot, DeviceKind device,
              CpuPool& pool, std::byte* target);

}  // namespace inflight::builder
