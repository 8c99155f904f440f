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
  const bool has_weights = shape.weight_dtype == shape.dtype || shape.weight_dtype == DType::kI8 ||
                           (shape.weight_dtype == DType::kF8E4M3 && shape.dtype == DType::kBF16);
  const bool has_kv = shape.kv_dtype == shape.dtype || shape.kv_dtype == DType::kF8E4M3;
  return has_dtype && has_weights && has_kv && std::ranges::count(kHeadDims, shape.head_dim) == 1;
}

template <KernelSet kSet>
OpTable Table(const char* name) {
  return {.embed = Embed,
          .add_norm = AddNorm,
          .qkv_rope_kv = QkvRopeKv<kSet>,
          .attention = Attention<kSet>,
          .linear = Linear<kSet>,
          .gated_linear = GatedLinear<kSet>,
          .lm_head = LmHead<kSet>,
          .quantize = Quantize,
          .plan_attention = PlanAttention,
          .name = name};
}

}  // namespace

std::vector<OpTable> OpTables(const ShapeClass& shape, const Device& device) {
  if (!IsBuilt(shape)) return {};
  std::vector<OpTable> tables;
  const int capability = device.cuda().compute_capability();
  if (shape.weight_dtype == DType::kF8E4M3 && capability < 89) return {};
  if (capability == 90) tables.push_back(Table<KernelSet::kSm90>("cuda/sm90"));
  tables.push_back(Table<KernelSet::kAny>("cuda/any"));
  if (capability == 90) {
    tables.push_back(tables.front());
    tables.back().attention = Attention<KernelSet::kSm90Wgmma>;
    tables.back().name = "cuda/sm90_wgmma";
  }
  tables.push_back(Profiled(tables.front()));
  return tables;
}

}  // namespace inflight::ops::cuda
