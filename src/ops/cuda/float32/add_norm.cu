// SPDX-License-Identifier: Apache-2.0
// Residual addition and norm: one CTA per row, which it reads again from the cache for each pass.
#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/float32/kernels.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/reduce.cuh"

namespace inflight::ops::cuda::float32 {
namespace {

constexpr int kRowThreads = 256;

struct AddNormArgs {
  float* residual;     // [num_tokens, hidden_size]
  const float* delta;  // as residual, or null
  float delta_factor;
  const float* weight;  // [hidden_size]; null = there is no norm
  const float* bias;    // [hidden_size] or null
  float eps;
  bool is_layer_norm;
  float* y;  // [num_tokens, hidden_size]; may be residual
  int64_t hidden_size;
};

// Each thread reads again only what it wrote itself.
__global__ void __launch_bounds__(kRowThreads) AddNormKernel(const AddNormArgs args) {
  BeginOverlapped();
  const int64_t width = args.hidden_size;
  float* const residual = args.residual + blockIdx.x * width;
  const float* const delta = args.delta + blockIdx.x * width;
  float* const y = args.y + blockIdx.x * width;
  const auto for_each = [&](const auto& use) {
    for (int64_t i = threadIdx.x; i < width; i += kRowThreads) use(i);
  };
  BlockReducer reducer;
  const auto size = static_cast<float>(width);
  float sum = 0;
  for_each([&](int64_t i) {
    if (args.delta != nullptr) residual[i] = fmaf(args.delta_factor, delta[i], residual[i]);
    sum += residual[i];
  });
  if (args.weight == nullptr) {
    if (y != residual) for_each([&](int64_t i) { y[i] = residual[i]; });
    return;
  }
  const float center = args.is_layer_norm ? reducer.Sum(sum) / size : 0.0F;
  float squares = 0;
  for_each([&](int64_t i) {
    const float x = residual[i] - center;
    squares = fmaf(x, x, squares);
  });
  const float scale = 1.0F / sqrtf(reducer.Sum(squares) / size + args.eps);
  for_each([&](int64_t i) {
    const float x = (residual[i] - center) * scale * args.weight[i];
    y[i] = args.bias == nullptr ? x : x + args.bias[i];
  });
}

Status Check(const AddNormParams& p) {
  RETURN_IF_ERROR(ExpectMatrix("residual", p.residual, {DType::kF32}));
  const Shape& shape = p.residual.shape;
  RETURN_IF_ERROR(ExpectOrEmpty("delta", p.delta, {DType::kF32}, shape));
  if (!p.delta_scales.token.empty())
    return InvalidArgument("delta_scales: float32 weights have no scales");
  if (p.peers != nullptr)
    return Unimplemented("peers: ranks add up 16-bit sums alone; open the model in bfloat16");
  if (p.norm.kind != NormKind::kNone) {
    RETURN_IF_ERROR(Expect("norm.weight", p.norm.weight, {DType::kF32}, {shape[1]}));
    RETURN_IF_ERROR(ExpectOrEmpty("norm.bias", p.norm.bias, {DType::kF32}, {shape[1]}));
  }
  return Expect("y", p.y, {DType::kF32}, shape);
}

}  // namespace

Status AddNorm(const AddNormParams& p, Stream& stream) {
  RETURN_IF_ERROR(Check(p));
  if (p.residual.num_elements() == 0) return Status::Ok();
  const bool has_norm = p.norm.kind != NormKind::kNone;
  const AddNormArgs args = {.residual = p.residual.as<float>(),
                            .delta = p.delta.as<const float>(),
                            .delta_factor = p.delta_factor,
                            .weight = has_norm ? p.norm.weight.as<const float>() : nullptr,
                            .bias = has_norm ? p.norm.bias.as<const float>() : nullptr,
                            .eps = p.norm.eps,
                            .is_layer_norm = p.norm.kind == NormKind::kLayerNorm,
                            .y = p.y.as<float>(),
                            .hidden_size = p.residual.shape[1]};
  LaunchOverlapped(AddNormKernel, static_cast<unsigned>(p.residual.shape[0]), kRowThreads, 0,
                   AsCuda(stream).handle(), args);
  return inflight::cuda::LaunchStatus("float32_add_norm");
}

}  // namespace inflight::ops::cuda::float32
