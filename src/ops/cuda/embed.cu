// SPDX-License-Identifier: Apache-2.0
// One CTA per token; 2 * hidden_size * 2 bytes per token, so a matter of latency.
#include <algorithm>
#include <string>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/vector.cuh"

namespace inflight::ops::cuda {
namespace {

constexpr int kMaxThreads = 512;

struct EmbedArgs {
  const int32_t* ids;
  const int32_t* positions;
  const void* table;               // [vocab_size, hidden_size]
  const void* position_table;      // [max_positions, hidden_size] or null
  const void* const* prompt_rows;  // [num_tokens] or null
  void* y;                         // [num_tokens, hidden_size]
  int64_t hidden_size;
  int64_t first_id;  // of the table's rows
  int64_t num_ids;   // that it has rows of; others have a row of zeros
  float scale;       // of the table's rows
};

// By vectors of kWidth elements: 8, or 1 where rows are not aligned.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kMaxThreads) EmbedKernel(const EmbedArgs args) {
  BeginOverlapped();
  const int64_t t = blockIdx.x;
  const void* const own_row = args.prompt_rows == nullptr ? nullptr : args.prompt_rows[t];
  const int64_t id = args.ids[t] - args.first_id;
  const bool has_row = own_row != nullptr || (id >= 0 && id < args.num_ids);
  const T* row = own_row != nullptr ? static_cast<const T*>(own_row)
                                    : static_cast<const T*>(args.table) + id * args.hidden_size;
  const T* position_row =
      args.position_table == nullptr
          ? nullptr
          : static_cast<const T*>(args.position_table) + args.positions[t] * args.hidden_size;
  const float scale = own_row != nullptr ? 1.0F : args.scale;
  T* y = static_cast<T*>(args.y) + t * args.hidden_size;
  for (int64_t i = int64_t{threadIdx.x} * kWidth; i < args.hidden_size;
       i += int64_t{blockDim.x} * kWidth) {
    if constexpr (kWidth == 1) {
      const float x = has_row ? __fmul_rn(ToFloat(row[i]), scale) : 0.0F;
      y[i] = FromFloat<T>(position_row == nullptr ? x : x + ToFloat(position_row[i]));
    } else if (position_row == nullptr && scale == 1.0F) {
      *reinterpret_cast<uint4*>(y + i) =
          has_row ? *reinterpret_cast<const uint4*>(row + i) : uint4{};
    } else {
      float x[kVector] = {};
      float position[kVector] = {};
      if (has_row) Load(row + i, x);
      if (position_row != nullptr) Load(position_row + i, position);
#pragma unroll
      for (int j = 0; j < kVector; ++j) x[j] = __fadd_rn(__fmul_rn(x[j], scale), position[j]);
      Store(y + i, x);
    }
  }
}

template <typename T, int kWidth>
void Launch(const EmbedArgs& args, int64_t num_tokens, cudaStream_t stream) {
  const int64_t vectors = (args.hidden_size + kWidth - 1) / kWidth;
  const auto threads =
      static_cast<unsigned>(std::min<int64_t>(kMaxThreads, (vectors + kWarp - 1) / kWarp * kWarp));
  LaunchOverlapped(EmbedKernel<T, kWidth>, static_cast<unsigned>(num_tokens), threads, 0, stream,
                   args);
}

Status Check(const EmbedParams& p) {
  const int64_t num_tokens = p.ids.num_elements();
  const int64_t hidden_size = p.table.in_features;
  RETURN_IF_ERROR(ExpectHalf("table", p.table.dtype));
  if (p.table.empty() || p.table.layout != WeightLayout::kRowMajor)
    return InvalidArgument("table: got a packed or empty weight, needed row-major as of CUDA");
  RETURN_IF_ERROR(Expect("ids", p.ids, {DType::kI32}, {num_tokens}));
  RETURN_IF_ERROR(Expect("y", p.y, {p.table.dtype}, {num_tokens, hidden_size}));
  if (p.prompt_rows != nullptr && p.prompt_dtype != p.table.dtype)
    return InvalidArgument("prompt_dtype: got " + std::string(DTypeName(p.prompt_dtype)) +
                           ", needed " + std::string(DTypeName(p.table.dtype)) + " as the table");
  if (p.position_table.empty()) return Status::Ok();
  RETURN_IF_ERROR(ExpectMatrix("position_table", p.position_table, {p.table.dtype}));
  RETURN_IF_ERROR(Expect("position_table", p.position_table, {p.table.dtype},
                         {p.position_table.shape[0], hidden_size}));
  return Expect("positions", p.positions, {DType::kI32}, {num_tokens});
}

}  // namespace

Status Embed(const EmbedParams& p, Stream& stream) {
  RETURN_IF_ERROR(Check(p));
  const int64_t num_tokens = p.ids.num_elements();
  if (num_tokens == 0 || p.table.in_features == 0) return Status::Ok();
  const EmbedArgs args = {.ids = p.ids.as<const int32_t>(),
                          .positions = p.positions.as<const int32_t>(),
                          .table = p.table.data,
                          .position_table = p.position_table.data,
                          .prompt_rows = p.prompt_rows,
                          .y = p.y.data,
                          .hidden_size = p.table.in_features,
                          .first_id = p.first_id,
                          .num_ids = p.table.out_features,
                          .scale = p.scale};
  const bool is_aligned = args.hidden_size % kVector == 0 && IsAligned(args.table) &&
                          IsAligned(args.position_table) && IsAligned(args.y);
  const cudaStream_t handle = AsCuda(stream).handle();
  WithHalf(p.table.dtype, [&]<typename T>(std::type_identity<T>) {
    if (is_aligned)
      Launch<T, kVector>(args, num_tokens, handle);
    else
      Launch<T, 1>(args, num_tokens, handle);
  });
  return inflight::cuda::LaunchStatus("embed");
}

}  // namespace inflight::ops::cuda
