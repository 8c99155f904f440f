// SPDX-License-Identifier: Apache-2.0
// The stored tensors of one module, and what they become.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/tensor_set.h"
#include "quantized/packed_matrix.h"
#include "tensor/scale_blocks.h"

namespace inflight::quantized {

// A weight that the engine can execute as it is stored: element k of row n stands for
//
//   codes[n, k] * scales[n]                               without groups
//   codes[n, k] * scales[n, g] + offsets[n, g]            g = k / group_size
//   codes[n, k] * 2^(scales[n, g] - 127)                  of float4_e2m1fn
struct NativeForm {
  artifact::StoredTensor codes;   // int8, int4, float4_e2m1fn or float8_e4m3fn [out, in]
  artifact::StoredTensor scales;  // floats [out]; of groups float32 [out, in / group_size], of
                                  // float4 uint8
  std::optional<artifact::StoredTensor> offsets = {};  // as scales of groups; none: all are 0
  int64_t group_size = 0;                              // 0: no groups
  // Of groups: the same scales and offsets in blocks, uint8 [out, blocks of a row * num_bytes], of
  // files that have them so; then `offset_blocks` beside `offsets`.
  ScaleBlocks blocks = {};
  std::optional<artifact::StoredTensor> scale_blocks = {};
  std::optional<artifact::StoredTensor> offset_blocks = {};
  // Of groups: element k of a row is of column order[k] of the weight, a permutation; none: k.
  std::shared_ptr<const std::vector<int32_t>> order = {};
};

struct Weight {
  // "MODULE.weight", float32 [out, in]; of experts [num_experts, out, in]
  artifact::StoredTensor widened;
  std::optional<NativeForm> native;
};

// Finds the tensors of a module, each "MODULE.NAME"; of some methods another `separator` stands
// between the two.
class Module {
 public:
  Module(const artifact::TensorSet& tensors, std::string name, char separator = '.')
      : tensors_(tensors), name_(std::move(name)), separator_(separator) {}

  const std::string& name() const { return name_; }
  std::string NameOf(std::string_view tensor) const;

  // Null where it is not there.
  const artifact::StoredTensor* Find(std::string_view tensor) const;
  // kInvalidArgument where it is not there.
  Result<const artifact::StoredTensor*> Get(std::string_view tensor) const;
  // The same; `dtypes` are those that it may have, `shape` is its own.
  Result<const artifact::StoredTensor*> Get(std::string_view tensor,
                                            std::initializer_list<DType> dtypes,
                                            const Shape& shape) const;
  // A matrix of that dtype with elements.
  Result<const artifact::StoredTensor*> GetMatrix(std::string_view tensor, DType dtype) const;

  // Groups of `size` columns of a weight with `in` columns, -1: one of all; kInvalidArgument where
  // they do not divide it.
  Result<int64_t> GroupSize(std::string_view field, int64_t size, int64_t in) const;

  // The group of each column as `tensor` [in] lists them; kInvalidArgument names one that is none
  // of `num_groups`.
  Result<std::vector<int32_t>> Groups(std::string_view tensor, int64_t in,
                                      int64_t num_groups) const;

 private:
  const artifact::TensorSet& tensors_;
  std::string name_;
  char separator_;
};

// Dtypes of scales.
inline constexpr std::initializer_list<DType> kScaleDTypes = {DType::kF16, DType::kBF16,
                                                              DType::kF32};

// Scales that are one for the tensor, for each row, for each block of rows and columns, or for each
// row and group; sets those of `matrix`, whose features are known.
Status SetScale(const Module& module, std::string_view tensor, PackedMatrix& matrix);
Status SetRowScales(const Module& module, std::string_view tensor, PackedMatrix& matrix);
Status SetGroupScales(const Module& module, std::string_view tensor, int64_t group_size,
                      PackedMatrix& matrix);
Status SetBlockScales(const Module& module, std::string_view tensor, int64_t block_rows,
                      int64_t block_columns, PackedMatrix& matrix);

// The form of a matrix; none where the engine has none for it: groups that have not equally many
// columns or no multiple of 16 of them, of FP8 other groups than of 128. Columns that are not in
// the order of their groups (act-order) are put into it, those of a group in theirs.
std::optional<NativeForm> NativeFormOf(const Module& module, const PackedMatrix& matrix);

}  // namespace inflight::quantized
