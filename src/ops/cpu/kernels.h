// SPDX-License-Identifier: Apache-2.0
// The inner kernels of the CPU backend, one set per instruction set: what launchers (linear.cc,
// attention.cc, add_norm.cc) call with raw pointers, one work item at a time.
//
// This header is compiled with the flags of every instruction set, so it holds plain data only: an
// inline function here could be the copy that the linker keeps, and crash an older machine
// (tests/ops/check_isa_objects.sh). No kernel allocates, locks or throws.
#pragma once

#include <cstdint>

namespace inflight::ops::cpu {

inline constexpr int kPanelColumns = 64;   // of a packed weight; weight.h
inline constexpr int kMaxRows = 64;        // rows of one kernel call, but for those of
inline constexpr int kMaxPanelRows = 256;  // panels where KernelSet::panel_rows says so
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kFp8Group = 128;       // columns of a group of e4m3
inline constexpr int kMaxBlockGroups = 16;  // of a block of scales, whose unit has so many bytes
inline constexpr int kBlockUnitBytes = 2;   // (tensor/scale_blocks.h)

// Names one of the two parts of a step of k: the even or the odd of each pair, the first or the
// second quad.
template <int kIndex>
struct StepPart {};

enum class Element : uint8_t { kF32, kF16, kBf16 };
enum class Function : uint8_t { kNone, kRelu, kGelu, kGeluTanh, kSilu };

// sums[r][n] = sum_k x[r][k] * panel[k][n], float32 (int8, int4, e4m3: below). A sum runs over k in
// ascending order (bf16: by pairs) whatever num_rows is.
struct PanelArgs {
  const void* const* x;  // [num_rows] rows of `in_features` bf16 (bf16 and e4m3 panels) or float32
  int num_rows;          // 1 .. KernelSet::panel_rows
  const void* panel;     // kPanel64 [in_features][64], kPanel64Vnni2 [in_features/2][64][2],
                         // of bf16 or e4m3,
                         // kPanel64Vnni4 [in_features/4][64][4] or kPanel64Nibbles
                         // [in_features/8][64][4]
  int64_t in_features;
  float* sums;  // [num_rows][64], 64-byte aligned

  // Elements [begin, end) of k, where KernelSet::panel_rows says so: calls of ascending parts with
  // the same sums make a whole, which has the bits of one call. Multiples of 512; an end of 0 is
  // in_features.
  int64_t begin = 0;
  int64_t end = 0;

  // panel_int8 and panel_int4 only: sums[r][n] = (float(exact sum of x[r][k] * weight[k][n]) *
  // w_scales[n]) * x_scales[r][0], for n < num_columns. x[r] is int8, followed by zeros up to a
  // multiple of 64.
  const float* const* x_scales = nullptr;  // [num_rows][1], or of groups
  const int32_t* const* x_sums = nullptr;  // [num_rows][1]: sum_k x[r][k], or of groups
  const float* w_scales = nullptr;         // [num_columns]
  int num_columns = 0;                     // 1 .. 64

  // With groups of k, in order, for all 64 columns (formula: ops/linear.h).
  int64_t group_size = 0;            // 0: none
  const float* w_offsets = nullptr;  // [groups][64], as w_scales then are; null: none
  // In place of both, scales in blocks of `block_groups` (tensor/scale_blocks.h): [groups /
  // block_groups][block_bytes][64]; of offsets null: none.
  const uint8_t* w_scale_blocks = nullptr;
  const uint8_t* w_offset_blocks = nullptr;
  int block_groups = 0;
  int64_t block_bytes = 0;
  int middle = 0;
  // panel_fp8 has groups of kFp8Group alone, without offsets, and nothing of x but its rows.
  // panel_fp4 only, in place of scales: [groups][64] e8m0, for integers that are twice the
  // elements.
  const uint8_t* w_exponents = nullptr;
};

// One token's activations as int8 (formula: ops/linear.h).
struct QuantizeArgs {
  const void* x;  // [size] bf16 or float32
  Element x_element;
  int64_t size;
  int64_t num_groups;  // of equal size; 1 without groups
  // [size] value k is of element order[k], and zero where that is below 0; null: of element k
  const int32_t* order = nullptr;
  int8_t* values;  // [size, padded with zeros to a multiple of 64]
  float* scales;   // [num_groups]
  int32_t* sums;   // [num_groups]
};

// y[r][n] = function(sums[r][n] + bias[n]), and where up_sums is set, times (up_sums[r][n] +
// up_bias[n]); with a limit both as of ops/experts.h.
struct FinishArgs {
  const float* sums;     // [num_rows][64]
  const float* bias;     // [num_columns] or null
  const float* up_sums;  // [num_rows][64] or null
  const float* up_bias;  // [num_columns] or null
  Function function;
  int num_rows;
  int num_columns;  // 1 .. 64
  Element y_element;
  void* const* y;  // [num_rows] where each row's first column goes
  float limit = 0;
};

// residual[i] += delta_factor * delta[i] (where delta is set); y = norm(residual). One token.
struct NormArgs {
  float* residual;     // [size]
  const float* delta;  // [size] or null
  float delta_factor;
  const float* weight;  // [size]; null: y = residual
  const float* bias;    // [size] or null
  bool center;          // LayerNorm: subtract the mean
  float eps;
  int64_t size;
  Element y_element;
  void* y;  // [size]
};

// Query rows that share one kv head of one sequence: all query heads of the group for one or more
// tokens. A row's result depends on its own position alone: keys are taken in tiles of 64 positions
// from 0 on, so neither batch nor chunk shows in it.
struct AttentionArgs {
  int num_rows;              // 1 .. kMaxRows
  const float* const* q;     // [num_rows] rows of head_dim
  const int32_t* positions;  // [num_rows]: keys 0 .. positions[r] are seen, but for those hidden
  // [num_rows]: keys num_sinks .. first_seen[r] - 1 are hidden, and what all rows hide is not read.
  const int32_t* first_seen;
  int num_sinks;
  void* const* y;  // [num_rows] rows of head_dim
  Element y_element;

  Element kv_element;
  const char* keys;    // of block 0, this layer and kv head; layout in kv_cache_view.h
  const char* values;  // likewise
  int64_t block_stride_bytes;
  const int32_t* block_table;
  int block_size;
  int head_dim;  // <= kMaxHeadDim
  float scale;
  float softcap = 0;                   // 0: scores are not capped (ops/attention.h)
  const float* sink_logits = nullptr;  // [num_rows], or null (ops/attention.h)

  // Rows of a tree of drafts (PagedBatch::tree_masks): from position tree_begin[r] on, row r's keys
  // stand at places tree_places[r][position - tree_begin[r]], and not at the place of that number.
  // tree_begin[r] > positions[r]: they all do. Rows of one token follow each other and have the
  // same pointer. Null: no row is of a tree.
  const int32_t* tree_begin = nullptr;          // [num_rows]
  const int32_t* const* tree_places = nullptr;  // [num_rows]
};

// values[i] = softcap * tanh(scale * values[i] / softcap), in place; scale * values[i] where
// softcap is 0.
struct CapArgs {
  float* values;  // [size]
  int64_t size;
  float scale;
  float softcap;
};

// sums[j] = sum_k x[k] * a[j][k] of one token, for j < num_rows (ops/lora.h).
struct ShrinkArgs {
  const void* x;  // [size] bf16 or float32
  Element x_element;
  int64_t size;
  const void* a;  // [num_rows][stride], stride a multiple of 16, zeros behind `size`
  Element element;
  int64_t stride;
  int num_rows;
  float* sums;  // [num_rows]
};

// sums[n] += sum_j shrunk[j] * b[j][n] of one token, for n < num_columns.
struct ExpandArgs {
  const float* shrunk;  // [rank]
  const void* b;        // [rank][stride]; fifteen elements behind the last are read, not used
  Element element;
  int64_t stride;
  int rank;
  int num_columns;  // 1 .. 64
  float* sums;      // [num_columns]
};

struct KernelSet {
  const char* name;  // "cpu/avx2", ...
  // Of one call of panel_bf16, of panel_fp8 and of those of integers: kMaxRows, or kMaxPanelRows
  // where they take parts of k too.
  int panel_rows;
  void (*panel_f32)(const PanelArgs&);
  void (*panel_f16)(const PanelArgs&);
  void (*panel_bf16)(const PanelArgs&);
  void (*panel_int8)(const PanelArgs&);
  void (*panel_int4)(const PanelArgs&);
  void (*panel_fp4)(const PanelArgs&);
  void (*panel_fp8)(const PanelArgs&);
  void (*quantize)(const QuantizeArgs&);
  void (*finish)(const FinishArgs&);
  void (*norm)(const NormArgs&);
  void (*attend)(const AttentionArgs&);
  void (*cap)(const CapArgs&);
  void (*shrink)(const ShrinkArgs&);
  void (*expand)(const ExpandArgs&);
};

// VPDPBUSD, and SDOT, for the sets below that have it; the only kernels of their translation units.
void PanelInt8Vnni(const PanelArgs& args);
void PanelInt4Vnni(const PanelArgs& args);
void PanelFp4Vnni(const PanelArgs& args);
// By AMX's tiles; of integers in few rows or in groups that are not of whole tiles as Vnni.
void PanelBf16Amx(const PanelArgs& args);
void PanelInt8Amx(const PanelArgs& args);
void PanelInt4Amx(const PanelArgs& args);
void PanelFp4Amx(const PanelArgs& args);
void PanelFp8Amx(const PanelArgs& args);
void AttendAmx(const AttentionArgs& args);
void AttendAvx512Bf16(const AttentionArgs& args);  // for what it leaves
void PanelInt8Dotprod(const PanelArgs& args);
void PanelInt4Dotprod(const PanelArgs& args);
void PanelFp4Dotprod(const PanelArgs& args);

// Of x86-64:
extern const KernelSet kAvx2;    // AVX2, FMA, F16C; integers by VPSIGNB and VPMADDUBSW
extern const KernelSet kAvx512;  // AVX-512 F, BW, DQ, VL; bf16 by shift and FMA, integers as AVX2
extern const KernelSet kAvx512Vnni;  // kAvx512 and VPDPBUSD
extern const KernelSet kAvx512Bf16;  // and VDPBF16PS, which flushes denormals; with VPDPBUSD
extern const KernelSet kAmx;         // kAvx512Bf16 and tiles; TDPBF16PS flushes denormals too
// Of AArch64:
extern const KernelSet kNeon;         // Advanced SIMD; bf16 by shift and FMA, integers by SMULL
extern const KernelSet kNeonDotprod;  // kNeon and SDOT

}  // namespace inflight::ops::cpu
