// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "ops/cuda/cuda.h"
#include "ops/cuda/decode_layers.h"
#include "ops/cuda/float32/kernels.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/profile.h"

namespace inflight::ops::cuda {
namespace {

bool IsSupported(const ShapeClass& shape) {
  const bool is_wide = shape.dtype == DType::kF32;
  const bool has_dtype = is_wide || shape.dtype == DType::kF16 || shape.dtype == DType::kBF16;
  const bool is_quantized = IsInteger(shape.weight_dtype) || shape.weight_dtype == DType::kF8E4M3;
  const bool has_weights = shape.weight_dtype == shape.dtype || (is_quantized && !is_wide);
  const bool has_kv =
      shape.kv_dtype == shape.dtype || (shape.kv_dtype == DType::kF8E4M3 && !is_wide);
  const bool has_heads =
      shape.head_dim > 0 && shape.head_dim % 8 == 0 && shape.head_dim <= kCudaHeadDims.back();
  return has_dtype && has_weights && has_kv && has_heads;
}

}  // namespace

Status CheckRunnable(const ShapeClass& shape, const inflight::cuda::DeviceProperties& gpu) {
  if (!IsSupported(shape))
    return Unimplemented(fmt::format(
        "cuda:{}: no kernels for {} weights, a model of dtype {}, a KV cache of {} and head_dim {} "
        "(docs/cuda.md lists what is supported; --dtype bfloat16 and head sizes that are multiples "
        "of 8 up to 256 are, and --dtype float32 with weights and a KV cache of float32)",
        gpu.index, DTypeName(shape.weight_dtype), DTypeName(shape.dtype), DTypeName(shape.kv_dtype),
        shape.head_dim));
  const int width = shape.weight_dtype == DType::kF8E4M3 ? 16
                    : shape.dtype == DType::kF32         ? 4
                                                         : 8;  // 16 bytes of a product's row
  for (const auto& [field, value] : {std::pair{"hidden_size", shape.hidden_size},
                                     {"intermediate_size", shape.intermediate_size}})
    if (value % width != 0)
      return Unimplemented(fmt::format(
          "cuda:{}: {} {} is no multiple of {}, as kernels need of each rank's part; use "
          "fewer ranks (--tensor-parallel-size), or --device cpu",
          gpu.index, field, value, width));
  if (shape.weight_dtype == DType::kF8E4M3 && gpu.compute_capability() < 89)
    return Unimplemented(fmt::format(
        "cuda:{}: FP8 weights need compute capability 8.9 or later, this {} has {}.{}; build the "
        "model without FP8 (--use-weight-only is int8)",
        gpu.index, gpu.name, gpu.compute_major, gpu.compute_minor));
  return Status::Ok();
}

std::vector<OpTable> OpTables(const ShapeClass& shape, const Device& device) {
  if (!CheckRunnable(shape, device.cuda()).ok()) return {};
  if (shape.dtype == DType::kF32) return {float32::Table(), Profiled(float32::Table())};
  const OpTable table = {.embed = Embed,
                         .add_norm = AddNorm,
                         .qkv_rope_kv = QkvRopeKv,
                         .attention = Attention,
                         .linear = Linear,
                         .gated_linear = GatedLinear,
                         .lm_head = LmHead,
                         .route = Route,
                         .expert_gated_linear = ExpertGatedLinear,
                         .expert_linear = ExpertLinear,
                         .quantize = Quantize,
                         .plan_attention = PlanAttention,
                         .name = "cuda"};
  OpTable layers = table;
  layers.decode_layers = DecodeLayers;
  layers.most_decode_layers_rows = MostDecodeLayersRows;
  layers.name = "cuda/layers";
  return {table, layers, Profiled(table)};
}

}  // namespace inflight::ops::cuda
