// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "ops/cuda/cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/profile.h"

namespace inflight::ops::cuda {
namespace {

bool IsBuilt(const ShapeClass& shape) {
  constexpr std::array kHeadDims = {64, 80, 96, 128, 256};
  const bool has_dtype = shape.dtype == DType::kF16 || shape.dtype == DType::kBF16;
  const bool has_weights = shape.weight_dtype == shape.dtype || IsInteger(shape.weight_dtype) ||
                           shape.weight_dtype == DType::kF8E4M3;
  const bool has_kv = shape.kv_dtype == shape.dtype || shape.kv_dtype == DType::kF8E4M3;
  return has_dtype && has_weights && has_kv && std::ranges::count(kHeadDims, shape.head_dim) == 1;
}

}  // namespace

std::vector<OpTable> OpTables(const ShapeClass& shape, const Device& device) {
  if (!IsBuilt(shape)) return {};
  const int capability = device.cuda().compute_capability();
  if (shape.weight_dtype == DType::kF8E4M3 && capability < 89) return {};
  const OpTable table = {.embed = Embed,
                         .add_norm = AddNorm,
                         .qkv_rope_kv = QkvRopeKv,
                         .attention = Attention,
                         .linear = Linear,
                         .gated_linear = GatedLinear,
                         .lm_head = LmHead,
                         .quantize = Quantize,
                         .plan_attention = PlanAttention,
                         .name = "cuda"};
  return {table, Profiled(table)};
}

}  // namespace inflight::ops::cuda
