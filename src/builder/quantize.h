// SPDX-License-Identifier: Apache-2.0
// Weights in eight bits, a scale per output channel, from the model's dtype.
//
// int8 (spec/engine.md 1.9.1):
//   s = max_k |w[k]| / 128        q[k] = w[k] / s, rounded half away from zero, in [-128, 127]
// so the largest weight saturates if it is positive. s is rounded to the model's dtype where it is
// stored, after it was used. A row of zeros has s = 0.
//
// FP8 (1.9.5):
//   s = max(max_k |w[k]|, 1/512) / 448        q[k] = e4m3(w[k] / s), rounded to nearest even
// and s is stored as float32.
//
// A row with infinity or NaN has s = NaN and q = 0. ops/convert_rows.h does the same on a GPU.
#pragma once

#include "builder/weight_source.h"

namespace inflight::builder {

// Return s.
float QuantizeRow(const float* row, int64_t size, int8_t* out);
float QuantizeRow(const float* row, int64_t size, Float8E4M3* out);

// Rows [row, row + num_rows) of a slot as a checkpoint of source.config holds them: int8 or FP8
// if the slot is quantised, its scales if they are FP8's float32, else the model's dtype. Quantises
// float sources, and takes what is stored of sources that are quantised already.
void CopySlotRows(const WeightSource& source, const model::WeightSlot& slot, int64_t row,
                  int64_t num_rows, void* out);

// The same for a block, dense. Matrices are quantised by whole rows, whatever the block's columns.
void CopySlotBlock(const WeightSource& source, const model::WeightSlot& slot,
                   const WeightBlock& block, void* out);

// The dtype that both write.
DType CheckpointDType(const model::ModelConfig& config, const model::WeightSlot& slot);

}  // namespace inflight::builder
