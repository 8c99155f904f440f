// SPDX-License-Identifier: Apache-2.0
// The products of experts. A warp has four rows of the weight for up to eight places, which it
// takes by the experts that they are of.
#include <string>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/experts.h"
#include "ops/cuda/float32/activate.cuh"
#include "ops/cuda/float32/dots.cuh"
#include "ops/cuda/float32/kernels.h"
#include "ops/cuda/overlap.cuh"
#include "ops/experts.h"

namespace inflight::ops::cuda::float32 {
namespace {

constexpr int kWarps = 8;
constexpr int kPlaces = 8;      // of a CTA
constexpr int kWeightRows = 4;  // of a warp: columns of y, or half as many of a gated one

struct ExpertArgs {
  const float* x;         // [num_tokens, k], or [num_places, k] without `tokens`
  const int32_t* begins;  // [num_experts + 1]
  const int32_t* tokens;  // [num_places] or null
  const float* w;         // of each expert [width, k], gated [2 * width, k]: up, then gate
  const float* bias;      // likewise, or null
  const float* weights;   // [num_places], what y is times; not of gated ones
  float* y;               // [num_places, width]
  int64_t k;
  int width, num_experts, num_places;
  ActivationKind activation;  // of gated ones
  float limit;                // likewise, as of ExpertGatedLinearParams
};

// The last expert that begins at or before the place: others there have no places.
__device__ int ExpertOf(const ExpertArgs& p, int place) {
  int low = 0;
  int high = p.num_experts - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (p.begins[middle] <= place)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

__device__ float Gated(const ExpertArgs& p, float gate, float up) {
  if (p.limit == 0.0F) return __fmul_rn(Activate(p.activation, gate), up);
  const float g = fminf(gate, p.limit);
  const float u = fminf(fmaxf(up, -p.limit), p.limit);
  return __fmul_rn(g / (1.0F + expf(-1.702F * g)), __fadd_rn(u, 1.0F));
}

// CTA (c, r): columns of y of its warps, places from kPlaces * r on.
template <bool kIsGated, bool kIsAligned>
__global__ void __launch_bounds__(kWarps* kWarp) ExpertKernel(const ExpertArgs p) {
  BeginOverlapped();
  constexpr int kColumns = kIsGated ? kWeightRows / 2 : kWeightRows;
  const auto warp = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / kWarp);
  const int first_column = warp * kColumns;
  if (first_column >= p.width) return;
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const int column = first_column + lane % kColumns;
  const int rows_of_expert = kIsGated ? 2 * p.width : p.width;
  const int end = min(static_cast<int>(blockIdx.y + 1) * kPlaces, p.num_places);
  for (auto place = static_cast<int>(blockIdx.y) * kPlaces; place < end;) {
    const int expert = ExpertOf(p, place);
    const int end_of_expert = min(end, p.begins[expert + 1]);
    const int64_t first_row = int64_t{expert} * rows_of_expert;
    const float* x[kPlaces];
    const float* w[kWeightRows];
#pragma unroll
    for (int r = 0; r < kPlaces; ++r) {
      const int at = min(place + r, end_of_expert - 1);
      x[r] = p.x + int64_t{p.tokens == nullptr ? at : p.tokens[at]} * p.k;
    }
#pragma unroll
    for (int c = 0; c < kWeightRows; ++c) {
      const int of_part = min(first_column + c % kColumns, p.width - 1);
      w[c] = p.w + (first_row + of_part + (c >= kColumns ? p.width : 0)) * p.k;
    }
    float sums[kPlaces][kWeightRows];
    Dots<kPlaces, kWeightRows, kIsAligned>(x, w, p.k, sums);

    const int r = lane / kColumns;
    const int at = place + r;
    float y = Pick(sums, r, lane % kColumns);
    if (p.bias != nullptr && column < p.width) y = __fadd_rn(y, p.bias[first_row + column]);
    if constexpr (kIsGated) {
      float gate = Pick(sums, r, kColumns + lane % kColumns);
      if (p.bias != nullptr && column < p.width)
        gate = __fadd_rn(gate, p.bias[first_row + p.width + column]);
      y = Gated(p, gate, y);
    }
    if (r < kPlaces && at < end_of_expert && column < p.width)
      p.y[int64_t{at} * p.width + column] = kIsGated ? y : __fmul_rn(p.weights[at], y);
    place = end_of_expert;
  }
}

template <bool kIsGated>
Status LaunchExperts(const ExpertArgs& p, CudaStream& stream) {
  const bool is_aligned = p.k % kLaneElements == 0 && IsAligned(p.x) && IsAligned(p.w);
  constexpr int kCtaColumns = kWarps * (kIsGated ? kWeightRows / 2 : kWeightRows);
  const dim3 grid(static_cast<unsigned>((p.width + kCtaColumns - 1) / kCtaColumns),
                  static_cast<unsigned>((p.num_places + kPlaces - 1) / kPlaces));
  LaunchOverlapped(is_aligned ? ExpertKernel<kIsGated, true> : ExpertKernel<kIsGated, false>, grid,
                   kWarps * kWarp, 0, stream.handle(), p);
  return inflight::cuda::LaunchStatus("float32_experts");
}

// CTAs of places are the second dimension of a grid.
constexpr int64_t kMaxPlaces = 65535 * int64_t{kPlaces};

Status ExpectRoutes(const ExpertRoutes& routes, int64_t num_places) {
  const int64_t num_experts = routes.begins.num_elements() - 1;
  if (num_experts < 1 || num_experts > kMaxExperts)
    return InvalidArgument("routes.begins: got " + std::to_string(num_experts) +
                           " experts, needed [1, " + std::to_string(kMaxExperts) + "]");
  if (num_places > kMaxPlaces)
    return InvalidArgument("routes.tokens: got " + std::to_string(num_places) +
                           " places, needed at most " + std::to_string(kMaxPlaces));
  RETURN_IF_ERROR(Expect("routes.begins", routes.begins, {DType::kI32}, {num_experts + 1}));
  RETURN_IF_ERROR(Expect("routes.tokens", routes.tokens, {DType::kI32}, {num_places}));
  RETURN_IF_ERROR(Expect("routes.weights", routes.weights, {DType::kF32}, {num_places}));
  return Expect("routes.places", routes.places, {DType::kI32}, {num_places});
}

// Of a weight of `num_experts` times `rows`, and x that it reads.
Status ExpectOperands(const Activation& x, const Weight& weight, int64_t num_experts, int64_t rows,
                      const TensorView& bias) {
  RETURN_IF_ERROR(ExpectWeight("weight", weight));
  if (weight.out_features != num_experts * rows)
    return InvalidArgument("weight: got " + std::to_string(weight.out_features) + " rows, needed " +
                           std::to_string(rows) + " of each of " + std::to_string(num_experts) +
                           " experts");
  RETURN_IF_ERROR(ExpectInput(x, weight));
  return ExpectOrEmpty("bias", bias, {DType::kF32}, {weight.out_features});
}

ExpertArgs ArgsOf(const Activation& x, const ExpertRoutes& routes, const Weight& weight,
                  const TensorView& bias, int64_t width) {
  return {.x = x.values.as<const float>(),
          .begins = routes.begins.as<const int32_t>(),
          .w = static_cast<const float*>(weight.data),
          .bias = bias.as<const float>(),
          .k = weight.in_features,
          .width = static_cast<int>(width),
          .num_experts = static_cast<int>(routes.begins.num_elements() - 1),
          .num_places = static_cast<int>(routes.tokens.num_elements())};
}

}  // namespace

Status ExpertGatedLinear(const ExpertGatedLinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(ExpectMatrix("y", p.y, {DType::kF32}));
  const int64_t num_places = p.y.shape[0];
  const int64_t width = p.y.shape[1];
  RETURN_IF_ERROR(ExpectRoutes(p.routes, num_places));
  const int64_t num_experts = p.routes.begins.num_elements() - 1;
  RETURN_IF_ERROR(ExpectOperands(p.x, p.weight, num_experts, 2 * width, p.bias));
  if (!(p.limit >= 0))
    return InvalidArgument("limit: got " + std::to_string(p.limit) + ", needed 0 or one above it");
  if (num_places == 0) return Status::Ok();
  ExpertArgs args = ArgsOf(p.x, p.routes, p.weight, p.bias, width);
  args.tokens = p.routes.tokens.as<const int32_t>();
  args.y = p.y.as<float>();
  args.activation = p.activation;
  args.limit = p.limit;
  return LaunchExperts</*kIsGated=*/true>(args, AsCuda(stream));
}

Status ExpertLinear(const ExpertLinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(ExpectMatrix("y", p.y, {DType::kF32}));
  const int64_t num_tokens = p.y.shape[0];
  const int64_t width = p.y.shape[1];
  const int64_t num_places = p.routes.tokens.num_elements();
  RETURN_IF_ERROR(ExpectRoutes(p.routes, num_places));
  const int64_t num_experts = p.routes.begins.num_elements() - 1;
  RETURN_IF_ERROR(ExpectOperands(p.x, p.weight, num_experts, width, p.bias));
  RETURN_IF_ERROR(Expect("x", p.x.values, {DType::kF32}, {num_places, p.weight.in_features}));
  RETURN_IF_ERROR(Expect("workspace", p.workspace, {DType::kF32}, {num_places, width}));
  if (width % kLaneElements != 0 || !IsAligned(p.workspace.data) || !IsAligned(p.y.data))
    return InvalidArgument("y: rows of y and workspace begin at multiples of 16 bytes");
  if (num_tokens == 0) return Status::Ok();
  if (num_places % num_tokens != 0)
    return InvalidArgument("x: got " + std::to_string(num_places) + " places of " +
                           std::to_string(num_tokens) + " tokens, needed equally many of each");
  ExpertArgs args = ArgsOf(p.x, p.routes, p.weight, p.bias, width);
  args.weights = p.routes.weights.as<const float>();
  args.y = p.workspace.as<float>();
  RETURN_IF_ERROR(LaunchExperts</*kIsGated=*/false>(args, AsCuda(stream)));
  return LaunchExpertSum({.parts = p.workspace.as<const float>(),
                          .places = p.routes.places.as<const int32_t>(),
                          .num_tokens = static_cast<int>(num_tokens),
                          .per_token = static_cast<int>(num_places / num_tokens),
                          .width = static_cast<int>(width),
                          .y_dtype = DType::kF32,
                          .y = p.y.data},
                         AsCuda(stream));
}

}  // namespace inflight::ops::cuda::float32
