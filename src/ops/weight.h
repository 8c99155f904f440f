// SPDX-License-Identifier: Apache-2.0
// A linear layer's weight as kernels read it: logical [out_features, in_features] in a named
// layout.
//
// Layouts (N = out, K = in; both padded with zeros to the tile):
//   kRowMajor      [N][K]                     the checkpoint's own layout; read by ops/reference
//   kPanel64       [N/64][K][64]              float32, float16
//   kPanel64Vnni2  [N/64][K/2][4][16][2]      bfloat16, and float8 that becomes it: pairs of k for
//                                             VDPBF16PS and AMX
//   kPanel64Vnni4  [N/64][K/4][4][16][4]      int8, stored as element + 128: quads of k for AMX and
//                                             VPDPBUSD, whose first operand is unsigned
//   kPanel64Nibbles [N/64][K/8][4][16][4]     int4, stored as element + 8, and float4, as it is:
//                                             byte j of 4 holds k = 8i + j in its low bits and
//                                             8i + 4 + j above, so that a mask and a shift give
//                                             two quads
//   kTensorCore    [N][K/S][4][16 bytes]      int8 and int4 on GPUs, N in whole panels, K in whole
//                                             slabs of S elements, 64 bytes: S = 64 or 128. Lane l
//                                             of a warp takes bytes 16 (l % 4) on, and has its part
//                                             of the slab's S / 16 operands of mma.m16n8k16
//                                             (ops/tensor_core_order.h)
// Panels have 64 rows for int8, too: a linear's items, sums and epilogue are then the same for
// every dtype.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/cpu_pool.h"
#include "tensor/scale_blocks.h"
#include "tensor/tensor_view.h"

namespace inflight::ops {

// Of sizes of groups (Weight::group_size): two steps of the CPU's kernels, one of a tensor core.
inline constexpr int64_t kGroupStep = 16;
// In an order of columns (Weight::order).
inline constexpr int32_t kNoColumn = -1;

enum class WeightLayout : uint8_t {
  kRowMajor,
  kPanel64,
  kPanel64Vnni2,
  kPanel64Vnni4,
  kPanel64Nibbles,
  kTensorCore
};

// "row_major", "panel64", "panel64_vnni2", "panel64_vnni4", "panel64_nibbles" as in engine files,
// "tensor_core".
std::string_view WeightLayoutName(WeightLayout layout);
std::optional<WeightLayout> WeightLayoutFromName(std::string_view name);

// int8, int4 and float4: weights whose elements, or of float4 twice its elements, are integers with
// a scale per row or group.
bool IsInteger(DType weight_dtype);

// Bytes of a [out_features, in_features] weight of `dtype` in `layout`, padding included.
size_t WeightBytes(DType dtype, WeightLayout layout, int64_t out_features, int64_t in_features);

struct Weight {
  const void* data = nullptr;  // 64-byte aligned
  DType dtype = DType::kF32;
  WeightLayout layout = WeightLayout::kRowMajor;
  int64_t out_features = 0;
  int64_t in_features = 0;
  // Of int8, int4 and f8e4m3 weights: element k of row n stands for element * scale[n]. Null for
  // others.
  //
  // With groups, of int8 and int4, and of f8e4m3 without offsets, element k stands for
  //
  //   element * scale[n, g] + offset[n, g]      g = k / group_size
  //
  // in float32: AWQ's and GPTQ's (q - z) s is q s + (-z s), and a block d q + m of GGUF is one as
  // it is. Scales and offsets are [out_features][in_features / group_size] beside kRowMajor, and
  // [out_features / 64][in_features / group_size][64] beside the other layouts, padded with zeros
  // as panels are.
  const float* scales = nullptr;   // [out_features], or of groups
  const float* offsets = nullptr;  // of groups; null: all are 0
  // Of float4, which has groups and no offsets, in place of scales, laid out as they are: e8m0, a
  // power of two each (OCP Microscaling Formats 1.0, MXFP4). The integer is twice the element and
  // its scale half of that power (HalfOfE8M0).
  const uint8_t* exponents = nullptr;
  // Of int8 and int4 in groups, on the CPU alone, in place of scales and offsets where `blocks` is
  // not empty: [out_features][blocks of a row][num_bytes] beside kRowMajor,
  // [out_features / 64][blocks of a row][num_bytes][64] beside the other layouts.
  const uint8_t* scale_blocks = nullptr;
  const uint8_t* offset_blocks = nullptr;  // null: all offsets are 0
  ScaleBlocks blocks = {};
  int64_t group_size = 0;  // a multiple of kGroupStep that divides in_features; 0: no groups
  // Of groups, on the CPU alone: [in_features] the column of x that element k of every row is of, a
  // permutation, so that the columns of a group lie side by side (GPTQ's act-order,
  // arXiv:2210.17323). Null: column k.
  const int32_t* order = nullptr;
  // Of an order: columns of x where they are fewer than in_features. Other elements of rows, which
  // fill groups up where a rank has a part of each, are of kNoColumn: as if x were zero there. 0:
  // in_features.
  int64_t num_inputs = 0;

  bool empty() const { return data == nullptr; }
  // Columns of x.
  int64_t x_features() const { return num_inputs == 0 ? in_features : num_inputs; }
  int64_t num_groups() const { return group_size == 0 ? 1 : in_features / group_size; }
  // Of its scales in blocks, for each row.
  int64_t block_bytes() const {
    return blocks.empty() ? 0 : num_groups() / blocks.groups * blocks.num_bytes();
  }
  bool has_offsets() const { return offsets != nullptr || offset_blocks != nullptr; }
};

// f8e4m3 whose scales are of groups: its products read activations of the model's dtype, on the CPU
// bfloat16 alone.
inline bool IsGroupedFp8(const Weight& weight) {
  return weight.dtype == DType::kF8E4M3 && weight.group_size > 0;
}

// Elements of the scales, and of the offsets, of a [out_features, in_features] weight in `layout`,
// padding included; without groups [out_features].
int64_t NumScales(WeightLayout layout, int64_t out_features, int64_t in_features,
                  int64_t group_size);

// Where the scale, and the offset, of element k of row n stands in them.
int64_t ScaleIndex(const Weight& weight, int64_t n, int64_t k);

// The scale, and the offset, that stand there.
float ScaleAt(const Weight& weight, int64_t index);
float OffsetAt(const Weight& weight, int64_t index);

// Writes row-major scales or offsets [out_features][in_features / group_size] into `target`
// (NumScales long) as `layout` has them.
void PackScales(const float* source, int64_t out_features, int64_t num_groups, WeightLayout layout,
                float* target);

// The rows [first, first + num_rows) of a weight, `first` a multiple of 64 in packed layouts.
Weight RowsOf(const Weight& weight, int64_t first, int64_t num_rows);

// The layout that the CPU kernels read for `dtype`. One layout serves every ISA, so an engine file
// moves between machines.
WeightLayout CpuWeightLayout(DType dtype);

// Writes row-major `source` [out_features, in_features] into `target` (WeightBytes long) in
// `layout`, converting between float dtypes where they differ (round to nearest even). CPU only;
// on the threads of `pool` where one is given. kPanel64 takes float32 and float16, kPanel64Vnni2
// bfloat16, and float8 from itself, kPanel64Vnni4 int8, kPanel64Nibbles int4 and float4; these
// three are packed from themselves only (builder/quantize.h makes integers), and rows of four bits
// have an even number of elements. kPanel64 takes uint8 from itself: exponents of groups, and
// scales in blocks.
void PackWeight(const TensorView& source, DType dtype, WeightLayout layout, void* target,
                CpuPool* pool = nullptr);

// The inverse, to float32 row-major, of integer weights with their scale applied; for tests and for
// reading rows of a packed tied embedding. (ops/reference reads weights by itself.)
void UnpackWeightRow(const Weight& weight, int64_t row, float* out /* [in_features] */);

// out += row; for learned positions.
void AddWeightRow(const Weight& weight, int64_t row, float* out /* [in_features] */);

}  // namespace inflight::ops
