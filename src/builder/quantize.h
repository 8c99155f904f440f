// SPDX-License-Identifier: Apache-2.0
// Weight-only int8, a scale per output channel (spec/engine.md 1.9.1), from the model's dtype:
//   s = max_k |w[k]| / 128        q[k] = w[k] / s, rounded half away from zero, in [-128, 127]
// so the largest weight saturates if it is positive. s is rounded to the model's dtype where it is
// stored, after it was used. A row of zeros has s = 0; one with infinity or NaN has s = NaN.
#pragma once

#include "builder/weight_source.h"

namespace inflight::builder {

// Returns s.
float QuantizeRow(const float* row, int64_t size, int8_t* out);

// Rows [row, row + num_rows) of a slot as a checkpoint of source.config holds them: int8 if the
// slot is quantised, else the model's dtype. Quantises float sources, and takes what is stored of
// sources that are quantised already.
void CopySlotRows(const WeightSource& source, const model::WeightSlot& slot, int64_t row,
                  int64_t num_rows, void* out);

// The same for a block, dense. Matrices are quantised by whole rows, whatever the block's columns.
void CopySlotBlock(const WeightSource& source, const model::WeightSlot& slot,
                   const WeightBlock& block, void* out);

// The dtype that both write.
DType CheckpointDType(const model::ModelConfig& config, const model::WeightSlot& slot);

}  // namespace inflight::builder
