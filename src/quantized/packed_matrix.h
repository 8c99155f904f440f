// SPDX-License-Identifier: Apache-2.0
// A weight [out, in] whose elements are codes with scales and zero points, as numbers:
//
//   w[n, k] = (q[n, k] - z[n, g]) * s[n, g]        g = the group of column k
//
// computed in float32, where it is exact, and rounded once to the dtype of PackedMatrix::rounds_to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "artifact/stored_tensor.h"

namespace inflight::quantized {

// How codes lie in a file. Words are of 32 bits, P = 32 / bits codes each, the first in the low
// bits unless the layout says otherwise.
enum class CodeLayout : uint8_t {
  kAwq,       // [in][out / 8] words of columns 8j + {0, 2, 4, 6, 1, 3, 5, 7} of the output
  kGptq,      // [in / P][out] words of P inputs
  kRowWords,  // [out][ceil(in / P)] words of P inputs
  kInt8,      // [out][in] signed bytes
  kFp8,       // [out][in] float8_e4m3fn
  kRowPairs,  // [out / 2][in] bytes of outputs 2j, in the low bits, and 2j + 1; each less 8 in
              // two's complement
};

// How zero points lie in a file: G groups.
enum class ZeroLayout : uint8_t {
  kConstant,     // PackedMatrix::zero of all
  kAwq,          // [G][out / 8] words, in the order of the codes
  kGptq,         // [G][out / P] words
  kColumnWords,  // [ceil(out / P)][G] words of P outputs
  kInt8,         // as scales, signed bytes
  kOffsets,      // [out / zero_rows][G][zero_rows] floats: (c - z) s, c the middle of the codes,
                 // rounded to their dtype, as MultipleOf takes them
};

// The whole number n from -2^(bits - 1) to 2^(bits - 1) of which n * scale, rounded to `dtype`, is
// `offset`; none where there is none.
std::optional<int> MultipleOf(float offset, DType dtype, float scale, int bits);

struct PackedMatrix {
  int64_t out_features = 0;
  int64_t in_features = 0;
  int bits = 4;
  CodeLayout layout = CodeLayout::kRowWords;
  std::span<const std::byte> codes = {};

  // s[n, g] = scales[n / block_rows * row_stride + g * group_stride]
  std::span<const std::byte> scales = {};
  DType scale_dtype = DType::kF32;
  int64_t block_rows = 1;
  int64_t row_stride = 0;
  int64_t group_stride = 0;
  int64_t num_groups = 1;
  int64_t group_size = 0;            // column k is of group k / group_size
  std::vector<int32_t> groups = {};  // [in_features] of each column; empty: group_size says it
  // Of Codes alone: element k is of column order[k], whose group is k / group_size. Null: k.
  std::shared_ptr<const std::vector<int32_t>> order = {};

  ZeroLayout zero_layout = ZeroLayout::kConstant;
  std::span<const std::byte> zeros = {};
  int zero = 0;  // of kConstant; of the others but kOffsets added to what is stored
  DType zero_dtype = DType::kF32;  // of kOffsets
  int64_t zero_rows = 0;           // likewise

  DType rounds_to = DType::kF32;

  // Floats.
  artifact::StoredTensor AsTensor(std::string name) const;

  // The same numbers as a matrix of the engine (ops/weight.h): element k of row n stands for
  //
  //   code[n, k] * scale[n, g] + offset[n, g]      code = q - c, offset = (c - z) s, in float32
  //
  // c, the middle of the codes, makes them signed. Of integers, groups in their order, that have
  // even numbers of columns. Codes are int8 or int4, scales and offsets float32 [out, num_groups].
  artifact::StoredTensor Codes(std::string name) const;
  artifact::StoredTensor Scales(std::string name) const;
  artifact::StoredTensor Offsets(std::string name) const;
  // Whether all offsets are 0.
  bool IsSymmetric() const;
  // Of kOffsets: whether each is a multiple of its scale.
  bool HasMultiples() const;
  int Middle() const;
};

// One element of a tensor for every row.
std::shared_ptr<const artifact::TensorReader> Repeated(std::span<const std::byte> element);

}  // namespace inflight::quantized
