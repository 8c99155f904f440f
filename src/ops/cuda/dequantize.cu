// SPDX-License-Identifier: Apache-2.0
// int8, int4, float4 and grouped FP8 weights to the model's dtype, for products of many rows: 3 and
// 2.5 bytes moved per element, and the scales of groups.
#include <algorithm>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/float4_halves.cuh"
#include "ops/cuda/fp8_halves.cuh"
#include "ops/cuda/integer_halves.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/vector.cuh"

namespace inflight::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 8;  // units that a thread has under way
constexpr int64_t kMaxUnits = int64_t{1} << 31;

struct Args {
  const uint8_t* w;
  const float* scales;
  const float* offsets;
  uint32_t num_units;   // of the matrix
  uint32_t row_units;   // of a row
  uint32_t group_size;  // in elements; a row where there are no groups
  uint32_t num_groups;  // of a row
};

constexpr int PerByte(Codes codes) { return 8 / BitsOf(codes); }

// Code i of a word that holds 4 or 8 of them, the first in the low bits.
template <Codes kCodes>
__device__ float CodeAt(uint32_t word, int i) {
  constexpr int kBits = BitsOf(kCodes);
  if constexpr (kCodes == Codes::kFp8)
    return UnpackTwo<__half>(HalvesOfFp8(word >> (8 * i) & 0xffU)).x;
  return static_cast<float>(static_cast<int32_t>(word << (32 - kBits * (i + 1))) >> (32 - kBits));
}

// A unit is kVector neighbours of a row, of one group since those are multiples of kGroupStep: 4
// bytes of int4 or 8 of int8 become 16. Where rows are not aligned it is a byte. Neighbouring
// threads have neighbouring units, whatever the width of rows.
template <typename T, Codes kCodes, bool kIsVector>
__global__ void __launch_bounds__(kThreads) DequantizeKernel(const Args args, T* out) {
  constexpr int kPerByte = PerByte(kCodes);
  constexpr int kWords = kVector / (4 * kPerByte);
  constexpr int kElements = kIsVector ? kVector : kPerByte;
  const uint32_t first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;
  uint32_t words[kUnroll][kWords] = {};
  float scale[kUnroll], offset[kUnroll];
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) {
    const uint32_t unit = first + j * kThreads;
    scale[j] = 0.0F;
    offset[j] = -0.0F;  // which leaves every product as it is
    if (unit >= args.num_units) continue;
    if constexpr (!kIsVector) {
      words[j][0] = args.w[unit];
    } else if constexpr (kWords == 1) {
      words[j][0] = __ldcs(reinterpret_cast<const uint32_t*>(args.w) + unit);
    } else {
      const uint2 two = __ldcs(reinterpret_cast<const uint2*>(args.w) + unit);
      words[j][0] = two.x, words[j][1] = two.y;
    }
    const uint32_t row = unit / args.row_units;
    const uint32_t group = (unit - row * args.row_units) * kElements / args.group_size;
    const int64_t at = int64_t{row} * args.num_groups + group;
    scale[j] = args.scales[at];
    if (args.offsets != nullptr) offset[j] = args.offsets[at];
  }
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) {
    const uint32_t unit = first + j * kThreads;
    if (unit >= args.num_units) return;
    T* const to = out + int64_t{unit} * kElements;
    float values[kElements];
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const float code = CodeAt<kCodes>(words[j][i / (4 * kPerByte)], i % (4 * kPerByte));
      values[i] = fmaf(code, scale[j], offset[j]);
    }
    if constexpr (kIsVector) {
      Store(to, values);
    } else {
#pragma unroll
      for (int i = 0; i < kElements; ++i) to[i] = FromFloat<T>(values[i]);
    }
  }
}

// Of weights in the order of tensor cores (ops/tensor_core_order.h): a unit is a lane's 16 bytes of
// a slab. Four neighbouring threads have a slab and exchange words: each writes, of each 32
// elements of int4 or of each 16 of int8, 8 neighbours that come from all four.
template <typename T, Codes kCodes>
__global__ void __launch_bounds__(kThreads) DequantizeOrderedKernel(const Args args, T* out) {
  constexpr int kPerByte = PerByte(kCodes);
  constexpr int kSlab = 64 * kPerByte;
  constexpr int kEights = kSlab / 32;  // that a thread writes
  const uint32_t unit = blockIdx.x * kThreads + threadIdx.x;
  const bool is_inside = unit < args.num_units;
  const uint32_t j = unit % 4;
  const uint32_t row = unit / args.row_units;
  const uint32_t slab = (unit - row * args.row_units) / 4;
  uint4 mine = {};
  if (is_inside) mine = LoadOnce(args.w + int64_t{unit} * 16);
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    // Elements [8 e, 8 e + 8) of the slab: pair e % 4 of int4's word e / 4, e % 2 of int8's e / 2.
    const uint32_t e = 4 * i + j;
    uint32_t words[4];  // of the four lanes
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      if constexpr (kPerByte == 2) {
        words[q] = __shfl_sync(0xffffffff, WordOf(mine, i), q, 4);
      } else {
        const uint32_t even = __shfl_sync(0xffffffff, WordOf(mine, 2 * i), q, 4);
        const uint32_t odd = __shfl_sync(0xffffffff, WordOf(mine, 2 * i + 1), q, 4);
        words[q] = j < 2 ? even : odd;
      }
    }
    if (!is_inside) continue;
    const int first = static_cast<int>(kPerByte == 2 ? j : j % 2);
    const uint32_t group = (slab * kSlab + 8 * e) / args.group_size;
    // Without groups a scale of each row; with them 64 rows of each group side by side.
    const int64_t at = args.num_groups == 1
                           ? int64_t{row}
                           : (int64_t{row / 64} * args.num_groups + group) * 64 + row % 64;
    const float scale = args.scales[at];
    const float offset = args.offsets == nullptr ? -0.0F : args.offsets[at];
    float values[kVector];
#pragma unroll
    for (int v = 0; v < kVector; ++v)  // its neighbour stands 16 bits above
      values[v] = fmaf(CodeAt<kCodes>(words[v / 2], first + v % 2 * 2 * kPerByte), scale, offset);
    Store(out + int64_t{unit / 4} * kSlab + 8 * e, values);
  }
}

template <typename T, Codes kCodes>
Status LaunchOrdered(const Weight& weight, T* out, cudaStream_t stream) {
  constexpr int kElements = 16 * PerByte(kCodes);
  const int64_t row_units = weight.in_features / kElements;
  const int64_t num_units = weight.out_features * row_units;
  if (num_units >= kMaxUnits || !IsAligned(weight.data) || !IsAligned(out))
    return InvalidArgument("weight: got [" + std::to_string(weight.out_features) + ", " +
                           std::to_string(weight.in_features) + "], needed fewer elements, " +
                           std::to_string(kMaxUnits) + " of " + std::to_string(kElements) +
                           ", and aligned memory; widen some of its rows at a time");
  const int64_t group = weight.group_size == 0 ? weight.in_features : weight.group_size;
  const Args args = {.w = static_cast<const uint8_t*>(weight.data),
                     .scales = weight.scales,
                     .offsets = weight.offsets,
                     .num_units = static_cast<uint32_t>(num_units),
                     .row_units = static_cast<uint32_t>(row_units),
                     .group_size = static_cast<uint32_t>(group),
                     .num_groups = static_cast<uint32_t>(weight.num_groups())};
  const auto grid = static_cast<unsigned>((num_units + kThreads - 1) / kThreads);
  DequantizeOrderedKernel<T, kCodes><<<grid, kThreads, 0, stream>>>(args, out);
  return inflight::cuda::LaunchStatus("dequantize");
}

template <typename T, Codes kCodes>
Status Launch(const Weight& weight, T* out, cudaStream_t stream) {
  if (weight.layout == WeightLayout::kTensorCore)
    return LaunchOrdered<T, kCodes>(weight, out, stream);
  constexpr int kPerByte = PerByte(kCodes);
  constexpr size_t kCodeBytes = kVector / kPerByte;
  const bool is_vector =
      weight.in_features % kVector == 0 && IsAligned(weight.data, kCodeBytes) && IsAligned(out);
  const int64_t row_units = weight.in_features / (is_vector ? kVector : kPerByte);
  const int64_t num_units = weight.out_features * row_units;
  if (num_units >= kMaxUnits)
    return InvalidArgument("weight: got [" + std::to_string(weight.out_features) + ", " +
                           std::to_string(weight.in_features) + "], needed fewer elements, " +
                           std::to_string(kMaxUnits) + " of " + std::to_string(kVector) +
                           "; widen some of its rows at a time");
  const int64_t group = weight.group_size == 0 ? weight.in_features : weight.group_size;
  const Args args = {.w = static_cast<const uint8_t*>(weight.data),
                     .scales = weight.scales,
                     .offsets = weight.offsets,
                     .num_units = static_cast<uint32_t>(num_units),
                     .row_units = static_cast<uint32_t>(row_units),
                     .group_size = static_cast<uint32_t>(group),
                     .num_groups = static_cast<uint32_t>(weight.num_groups())};
  constexpr int64_t kPerCta = int64_t{kThreads} * kUnroll;
  const auto grid = static_cast<unsigned>((num_units + kPerCta - 1) / kPerCta);
  if (is_vector)
    DequantizeKernel<T, kCodes, true><<<grid, kThreads, 0, stream>>>(args, out);
  else
    DequantizeKernel<T, kCodes, false><<<grid, kThreads, 0, stream>>>(args, out);
  return inflight::cuda::LaunchStatus("dequantize");
}

struct Float4Args {
  const uint8_t* w;
  const uint8_t* exponents;
  uint32_t num_units;  // of the matrix
  uint32_t row_units;  // of a row
};

// A unit is the 16 bytes of a group: 32 elements.
template <typename T, bool kIsOrdered>
__global__ void __launch_bounds__(kThreads) DequantizeFloat4Kernel(const Float4Args args, T* out) {
  const uint32_t unit = blockIdx.x * kThreads + threadIdx.x;
  if (unit >= args.num_units) return;
  const uint4 codes = LoadOnce(args.w + int64_t{unit} * 16);
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
  const uint32_t row = unit / args.row_units;
  const uint32_t group = unit - row * args.row_units;
  // Ordered, 64 rows of each group stand side by side.
  const int64_t at =
      kIsOrdered ? (int64_t{row / 64} * args.row_units + group) * 64 + row % 64 : int64_t{unit};
  const uint32_t exponent = args.exponents[at];
  uint32_t eights[4][4];  // elements 8 i + 2 q and the one behind
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    uint32_t pairs[4];
    WidenFloat4<T, true>(kIsOrdered ? words[q] : OrderedFloat4(words, q), exponent, pairs);
#pragma unroll
    for (int i = 0; i < 4; ++i) eights[i][q] = pairs[i];
  }
  auto* const to = reinterpret_cast<uint4*>(out + int64_t{unit} * kFloat4Unit);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    to[i] = make_uint4(eights[i][0], eights[i][1], eights[i][2], eights[i][3]);
}

Status DequantizeFloat4(const Weight& weight, DType dtype, void* out, CudaStream& stream) {
  const int64_t row_units = weight.in_features / kFloat4Unit;
  const int64_t num_units = weight.out_features * row_units;
  if (weight.exponents == nullptr || weight.group_size != kFloat4Unit ||
      weight.in_features % kFloat4Unit != 0 || num_units >= kMaxUnits || !IsAligned(weight.data) ||
      !IsAligned(out))
    return InvalidArgument("weight: got float4 [" + std::to_string(weight.out_features) + ", " +
                           std::to_string(weight.in_features) + "] in groups of " +
                           std::to_string(weight.group_size) + ", needed groups of " +
                           std::to_string(kFloat4Unit) + " with exponents, fewer than " +
                           std::to_string(kMaxUnits) + " of them, and aligned memory");
  const Float4Args args = {.w = static_cast<const uint8_t*>(weight.data),
                           .exponents = weight.exponents,
                           .num_units = static_cast<uint32_t>(num_units),
                           .row_units = static_cast<uint32_t>(row_units)};
  const auto grid = static_cast<unsigned>((num_units + kThreads - 1) / kThreads);
  return WithHalf(dtype, [&]<typename T>(std::type_identity<T>) {
    auto* const to = static_cast<T*>(out);
    if (weight.layout == WeightLayout::kTensorCore)
      DequantizeFloat4Kernel<T, true><<<grid, kThreads, 0, stream.handle()>>>(args, to);
    else
      DequantizeFloat4Kernel<T, false><<<grid, kThreads, 0, stream.handle()>>>(args, to);
    return inflight::cuda::LaunchStatus("dequantize");
  });
}

}  // namespace

Status Dequantize(const Weight& weight, DType dtype, void* out, CudaStream& stream) {
  RETURN_IF_ERROR(ExpectHalf("dtype", dtype));
  if (weight.dtype == DType::kF4E2M1 && weight.out_features > 0 && weight.in_features > 0)
    return DequantizeFloat4(weight, dtype, out, stream);
  const bool is_int4 = weight.dtype == DType::kI4;
  const bool is_read =
      weight.layout == WeightLayout::kRowMajor || weight.layout == WeightLayout::kTensorCore;
  const bool has_codes = weight.dtype == DType::kI8 || is_int4 || IsGroupedFp8(weight);
  if (!has_codes || !is_read || weight.scales == nullptr ||
      (is_int4 && weight.in_features % 2 != 0))
    return InvalidArgument(
        "weight: got " + std::string(DTypeName(weight.dtype)) + " " +
        std::string(WeightLayoutName(weight.layout)) +
        ", needed int8, FP8 in groups or int4 of even rows, row_major or tensor_core, with scales");
  if (weight.out_features == 0 || weight.in_features == 0) return Status::Ok();
  return WithHalf(dtype, [&]<typename T>(std::type_identity<T>) {
    auto* const to = static_cast<T*>(out);
    if (is_int4) return Launch<T, Codes::kInt4>(weight, to, stream.handle());
    return weight.dtype == DType::kI8 ? Launch<T, Codes::kInt8>(weight, to, stream.handle())
                                      : Launch<T, Codes::kFp8>(weight, to, stream.handle());
  });
}

}  // namespace inflight::ops::cuda
