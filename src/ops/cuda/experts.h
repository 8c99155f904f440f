// SPDX-License-Identifier: Apache-2.0
// The kernels of mixtures of experts (ops/experts.h), which experts.cc launches once it has checked
// what it was given.
//
// Places of one expert are computed in tiles of so many tokens; which expert and which of its
// places a CTA has, it finds in `begins`, which the host cannot read. A launch has as many CTAs as
// the most uneven routes may need. An output adds up over k in one order whatever the tile, so that
// a token's results have the same bits alone and in a batch.
#pragma once

#include <optional>

#include "ops/cuda/cuda_stream.h"
#include "ops/experts.h"

namespace inflight::ops::cuda {

struct ExpertProduct {
  DType dtype = DType::kBF16;       // of x, and of w unless it is packed: f16 | bf16 | f8e4m3
  const void* x = nullptr;          // [num_tokens, k], or [num_places, k] without `tokens`
  const int32_t* begins = nullptr;  // [num_experts + 1]
  const int32_t* tokens = nullptr;  // [num_places] or null: a place reads its own row of x
  const void* w = nullptr;      // of each expert [width, k], gated [2 * width, k]: up, then gate
  const float* bias = nullptr;  // likewise, or null
  int64_t k = 0;                // whose rows are multiples of 16 bytes
  // f8e4m3 in groups, int8, int4 or f4e2m1 in the order of tensor cores; empty: w is of `dtype`.
  std::optional<DType> packed = std::nullopt;
  const float* x_scales = nullptr;     // of rows of x and of w; of f8e4m3
  const float* w_scales = nullptr;     // or of groups
  const float* w_offsets = nullptr;    // of groups of integers, or null
  const uint8_t* exponents = nullptr;  // in place of scales, of float4
  int group_shift = 31;                // groups of integers have 2^group_shift elements, or all
  int width = 0;                       // of y; a multiple of 64
  int num_experts = 0;
  int num_places = 0;              // most that begins[num_experts] may say
  int num_holders = 1;             // ranks that such places are spread over
  DType y_dtype = DType::kF32;     // of gated ones f16 | bf16, of others f32
  void* y = nullptr;               // [num_places, width]
  const float* weights = nullptr;  // [num_places], what y is times; not of gated ones
  ActivationKind activation = ActivationKind::kNone;  // of gated ones
  float limit = 0;                                    // likewise, as of ExpertGatedLinearParams
};

Status LaunchRoute(const RouteParams& params, CudaStream& stream);
Status LaunchExpertGated(const ExpertProduct& product, CudaStream& stream);
Status LaunchExpertDown(const ExpertProduct& product, CudaStream& stream);
// Of packed weights, which these two have by the ones above.
Status LaunchPackedExpertGated(const ExpertProduct& product, CudaStream& stream);
Status LaunchPackedExpertDown(const ExpertProduct& product, CudaStream& stream);

// y[t] = sum_j parts[places[t, j]], j ascending, of places that are not -1
struct ExpertSum {
  const float* parts = nullptr;     // [num_places, width]
  const int32_t* places = nullptr;  // [num_tokens, per_token]
  int num_tokens = 0;
  int per_token = 0;
  bool has_all = true;  // no place is -1
  int width = 0;        // a multiple of 4
  DType y_dtype = DType::kF32;
  void* y = nullptr;  // [num_tokens, width]
};
Status LaunchExpertSum(const ExpertSum& sum, CudaStream& stream);

}  // namespace inflight::ops::cuda
