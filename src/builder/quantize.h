// SPDX-License-Identifier: Apache-2.0
// Weights in eight or four bits, a scale per output channel or group, from the model's dtype.
//
// int8 and int4 (docs/reference/artifacts.md, "Quantised forms"), R = 128 and 8:
//   s = max_k |w[k]| / R          q[k] = w[k] / s, rounded half away from zero, in [-R, R - 1]
// so the largest weight saturates if it is positive. s is rounded to the model's dtype where it is
// stored, after it was used. A row of zeros has s = 0. In groups each group of a row is such a row,
// with s in float32 and offsets, where the form has them, of 0.
//
// FP8:
//   s = max(max_k |w[k]|, 1/512) / 448        q[k] = e4m3(w[k] / s), rounded to nearest even
// and s is stored as float32.
//
// A row with infinity or NaN has s = NaN and q = 0. ops/convert_rows.h does the same on a GPU.
#pragma once

#include "artifact/safetensors.h"
#include "builder/weight_source.h"

namespace inflight::builder {

// Writes a row, or a group, of i8, i4 (an even number of elements) or f8e4m3 and returns s.
float QuantizeRow(const float* row, int64_t size, DType dtype, void* out);

// Rows [row, row + num_rows) of a slot as a checkpoint of source.config holds them: of its form's
// dtype if the slot is quantised, its scales if they are FP8's or of groups float32, exponents
// uint8, else the model's dtype. Quantises float sources, but not to float4, and takes what is
// stored of sources that are quantised already.
void CopySlotRows(const WeightSource& source, const model::WeightSlot& slot, int64_t row,
                  int64_t num_rows, void* out);

// The same for a block, dense; its columns begin and end at whole bytes. Matrices are quantised by
// whole rows, whatever the block's columns.
void CopySlotBlock(const WeightSource& source, const model::WeightSlot& slot,
                   const WeightBlock& block, void* out);

// The dtype that both write.
DType CheckpointDType(const model::ModelConfig& config, const model::WeightSlot& slot);

// How files of checkpoints hold int4 and float4, which safetensors does not have: as int8 of half
// the width, the bytes unchanged. OfHalfBytes reads such a tensor as one of `dtype`.
artifact::TensorSpec FileSpec(std::string name, DType dtype, const Shape& shape);
artifact::StoredTensor OfHalfBytes(const artifact::StoredTensor& bytes, DType dtype);

}  // namespace inflight::builder
