// SPDX-License-Identifier: Apache-2.0
// The operators of one backend, as chosen when an engine is loaded.
//
// Each backend (reference, cpu, cuda) offers kernels; `Find` picks one per operator for a shape
// class and logs the choice. A choice can be forced by name, so that each kernel is testable on its
// own. Nothing is looked up per step: the model calls through this table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/add_norm.h"
#include "ops/attention.h"
#include "ops/embed.h"
#include "ops/linear.h"

namespace inflight::ops {

template <typename Params>
using Kernel = Status (*)(const Params& params, Stream& stream);

struct OpTable {
  Kernel<EmbedParams> embed = nullptr;
  Kernel<AddNormParams> add_norm = nullptr;
  Kernel<QkvRopeKvParams> qkv_rope_kv = nullptr;
  Kernel<AttentionParams> attention = nullptr;
  Kernel<LinearParams> linear = nullptr;
  Kernel<GatedLinearParams> gated_linear = nullptr;
  Kernel<LmHeadParams> lm_head = nullptr;
  std::string name;  // "reference", "cpu/avx2", "cpu/avx512", "cpu/avx512_bf16"
};

// What a model needs of its kernels; the same for all its layers.
struct ShapeClass {
  DType weight_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;
  int head_dim = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
};

// Tables that can run here for `shape`, best first; "reference" is always last.
std::vector<OpTable> CpuOpTables(const ShapeClass& shape);

// The best table, or the one called `force_name` (kNotFound lists the names that can run here).
// Logs what was chosen.
Result<OpTable> FindOps(DeviceKind device, const ShapeClass& shape,
                        std::string_view force_name = {});

}  // namespace inflight::ops
