// SPDX-License-Identifier: Apache-2.0
// In place over the output of a product: 2 * n elements moved per row.
#include <algorithm>

#include "base/status_macros.h"
#include "ops/cuda/activate.cuh"
#include "ops/cuda/arguments.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/vector.cuh"

namespace inflight::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxChunks = 65535;

// CTA (r, c): the units of kWidth elements [c * kThreads, (c + 1) * kThreads) of row r, and those
// gridDim.y chunks on. kWidth is 8, or 1 where rows are not aligned.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) EpilogueKernel(const EpilogueParams p) {
  BeginOverlapped();
  const int64_t row = blockIdx.x;
  T* y = static_cast<T*>(p.y) + row * p.n;
  const float token_scale = p.token_scales == nullptr ? 1.0F : p.token_scales[row] * p.token_factor;
  for (int64_t i = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kWidth; i < p.n;
       i += int64_t{gridDim.y} * kThreads * kWidth) {
    float x[kWidth];
    float factors[kWidth];
    float bias[kWidth];
    const auto load = [](const auto* from, float(&to)[kWidth]) {
      if constexpr (kWidth == 1)
        to[0] = ToFloat(*from);
      else
        Load(from, to);
    };
    load(y + i, x);
    if (p.feature_scales != nullptr) load(p.feature_scales + i, factors);
    if (p.bias != nullptr) load(p.bias + i, bias);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      x[k] *= token_scale;
      if (p.feature_scales != nullptr) x[k] *= factors[k];
      if (p.bias != nullptr) x[k] += bias[k];
    }
    Activate(p.activation, x);
    if (p.factor != 1.0F || p.softcap != 0.0F) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        x[k] *= p.factor;
        if (p.softcap != 0.0F) x[k] = p.softcap * tanhf(x[k] / p.softcap);
      }
    }
    if constexpr (kWidth == 1)
      y[i] = FromFloat<T>(x[0]);
    else
      Store(y + i, x);
  }
}

template <typename T>
void Launch(const EpilogueParams& p, cudaStream_t stream) {
  const bool is_aligned =
      p.n % kVector == 0 && IsAligned(p.y) && IsAligned(p.feature_scales) && IsAligned(p.bias);
  const int64_t per_cta = int64_t{kThreads} * (is_aligned ? kVector : 1);
  const int64_t chunks = std::min((p.n + per_cta - 1) / per_cta, kMaxChunks);
  const dim3 grid(static_cast<unsigned>(p.m), static_cast<unsigned>(chunks));
  if (is_aligned)
    LaunchOverlapped(EpilogueKernel<T, kVector>, grid, kThreads, 0, stream, p);
  else
    LaunchOverlapped(EpilogueKernel<T, 1>, grid, kThreads, 0, stream, p);
}

}  // namespace

Status Epilogue(const EpilogueParams& p, CudaStream& stream) {
  if (p.dtype != DType::kF32) RETURN_IF_ERROR(ExpectHalf("y", p.dtype));
  const bool does_nothing = p.token_scales == nullptr && p.feature_scales == nullptr &&
                            p.bias == nullptr && p.activation == ActivationKind::kNone &&
                            p.factor == 1.0F && p.softcap == 0.0F;
  if (p.m == 0 || p.n == 0 || does_nothing) return Status::Ok();
  if (p.dtype == DType::kF32)
    Launch<float>(p, stream.handle());
  else
    WithHalf(p.dtype, [&]<typename T>(std::type_identity<T>) { Launch<T>(p, stream.handle()); });
  return inflight::cuda::LaunchStatus("epilogue");
}

}  // namespace inflight::ops::cuda
