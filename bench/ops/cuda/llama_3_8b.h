// SPDX-License-Identifier: Apache-2.0
// The shape that CUDA kernels are timed in (docs/reference/kernels.md, "Limits of the hardware").
#pragma once

#include <cstdint>

#include "ops/backend.h"

namespace inflight::bench {

inline constexpr int kNumLayers = 32;

inline constexpr ops::ShapeClass kShape = {.weight_dtype = DType::kBF16,
                                           .dtype = DType::kBF16,
                                           .kv_dtype = DType::kBF16,
                                           .head_dim = 128,
                                           .num_heads = 32,
                                           .num_kv_heads = 8,
                                           .hidden_size = 4096,
                                           .intermediate_size = 14336};

struct LinearLayer {
  const char* name;
  int64_t n, k;  // weights [n, k]
  bool is_head = false;
};
inline constexpr LinearLayer kLinearLayers[] = {{"qkv", 6144, 4096},
                                                {"o", 4096, 4096},
                                                {"gate_up", 28672, 4096},
                                                {"down", 4096, 14336},
                                                {"lm_head", 128256, 4096, true}};

}  // namespace inflight::bench
