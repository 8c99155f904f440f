// SPDX-License-Identifier: Apache-2.0
// Activation functions (ops/linear.h) of float32 values on the device. Absolute error below
// 2^-20 |x|: e^x and 1 / x are one instruction of the special function units each.
#pragma once

#include "ops/linear.h"

namespace inflight::ops::cuda {

// x / (1 + e^-z); denormal numbers count as 0.
__device__ inline float TimesSigmoid(float x, float z) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-1.4426950409F * z));
  float sigmoid;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(sigmoid) : "f"(1.0F + power));
  return x * sigmoid;
}

template <ActivationKind kKind>
__device__ float Activate(float x) {
  if constexpr (kKind == ActivationKind::kRelu) {
    return fmaxf(x, 0.0F);
  } else if constexpr (kKind == ActivationKind::kSilu) {
    return TimesSigmoid(x, x);
  } else if constexpr (kKind == ActivationKind::kGeluTanh) {
    // (1 + tanh z) / 2 = 1 / (1 + e^-2z), z = sqrt(2 / pi) (x + 0.044715 x^3)
    const float twice_z = 1.5957691216F * (x + 0.044715F * x * x * x);
    return TimesSigmoid(x, twice_z);
  } else {
    return x;
  }
}

// Of kinds known at run time only: one branch, the same for all threads, per N values.
template <int N>
__device__ void Activate(ActivationKind kind, float (&x)[N]) {
  const auto apply = [&](const auto& activate) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = activate(x[i]);
  };
  switch (kind) {
    case ActivationKind::kRelu:
      return apply(Activate<ActivationKind::kRelu>);
    case ActivationKind::kGeluTanh:
      return apply(Activate<ActivationKind::kGeluTanh>);
    case ActivationKind::kSilu:
      return apply(Activate<ActivationKind::kSilu>);
    case ActivationKind::kNone:
      return;
  }
}

__device__ inline float Activate(ActivationKind kind, float x) {
  float one[1] = {x};
  Activate(kind, one);
  return one[0];
}

}  // namespace inflight::ops::cuda
