// SPDX-License-Identifier: Apache-2.0
// One CTA per token.
#include <string>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/float32/kernels.h"
#include "ops/cuda/overlap.cuh"

namespace inflight::ops::cuda::float32 {
namespace {

constexpr int kRowThreads = 256;

struct EmbedArgs {
  const int32_t* ids;
  const int32_t* positions;
  const float* table;              // [num_ids, hidden_size]
  const float* position_table;     // [max_positions, hidden_size] or null
  const void* const* prompt_rows;  // [num_tokens] or null
  float* y;                        // [num_tokens, hidden_size]
  int64_t hidden_size;
  int64_t first_id;  // of the table's rows
  int64_t num_ids;   // that it has rows of; others have a row of zeros
  float scale;       // of the table's rows
};

__global__ void __launch_bounds__(kRowThreads) EmbedKernel(const EmbedArgs args) {
  BeginOverlapped();
  const int64_t t = blockIdx.x;
  const int64_t width = args.hidden_size;
  const auto* const own_row =
      static_cast<const float*>(args.prompt_rows == nullptr ? nullptr : args.prompt_rows[t]);
  const int64_t id = args.ids[t] - args.first_id;
  const bool has_row = own_row != nullptr || (id >= 0 && id < args.num_ids);
  const float* const row = own_row != nullptr ? own_row : args.table + id * width;
  const float scale = own_row != nullptr ? 1.0F : args.scale;
  const float* const position_row =
      args.position_table == nullptr ? nullptr : args.position_table + args.positions[t] * width;
  for (int64_t i = threadIdx.x; i < width; i += kRowThreads) {
    const float x = has_row ? __fmul_rn(row[i], scale) : 0.0F;
    args.y[t * width + i] = position_row == nullptr ? x : __fadd_rn(x, position_row[i]);
  }
}

Status Check(const EmbedParams& p) {
  const int64_t num_tokens = p.ids.num_elements();
  const int64_t hidden_size = p.table.in_features;
  RETURN_IF_ERROR(ExpectWeight("table", p.table));
  RETURN_IF_ERROR(Expect("ids", p.ids, {DType::kI32}, {num_tokens}));
  RETURN_IF_ERROR(Expect("y", p.y, {DType::kF32}, {num_tokens, hidden_size}));
  if (p.prompt_rows != nullptr && p.prompt_dtype != DType::kF32)
    return InvalidArgument("prompt_dtype: got " + std::string(DTypeName(p.prompt_dtype)) +
                           ", needed float32 as the table");
  if (p.position_table.empty()) return Status::Ok();
  RETURN_IF_ERROR(ExpectMatrix("position_table", p.position_table, {DType::kF32}));
  RETURN_IF_ERROR(Expect("position_table", p.position_table, {DType::kF32},
                         {p.position_table.shape[0], hidden_size}));
  return Expect("positions", p.positions, {DType::kI32}, {num_tokens});
}

}  // namespace

Status Embed(const EmbedParams& p, Stream& stream) {
  RETURN_IF_ERROR(Check(p));
  const int64_t num_tokens = p.ids.num_elements();
  if (num_tokens == 0) return Status::Ok();
  const EmbedArgs args = {.ids = p.ids.as<const int32_t>(),
                          .positions = p.positions.as<const int32_t>(),
                          .table = static_cast<const float*>(p.table.data),
                          .position_table = p.position_table.as<const float>(),
                          .prompt_rows = p.prompt_rows,
                          .y = p.y.as<float>(),
                          .hidden_size = p.table.in_features,
                          .first_id = p.first_id,
                          .num_ids = p.table.out_features,
                          .scale = p.scale};
  LaunchOverlapped(EmbedKernel, static_cast<unsigned>(num_tokens), kRowThreads, 0,
                   AsCuda(stream).handle(), args);
  return inflight::cuda::LaunchStatus("float32_embed");
}

}  // namespace inflight::ops::cuda::float32
