// SPDX-License-Identifier: Apache-2.0
// Activation functions (ops/linear.h) of float32 values on the device. Absolute error below
// 2^-20 |x|: e^x and 1 / x are one instruction of the special function units each.
#pragma once

#include "ops/linear.h"

namespace inflight::ops::cuda {

__device__ inline float PowerOf2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

__device__ inline float Reciprocal(float x) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
  return reciprocal;
}

// x / (1 + e^-z); denormal numbers count as 0.
__device__ inline float TimesSigmoid(float x, float z) {
  return x * Reciprocal(1.0F + PowerOf2(-1.4426950409F * z));
}

// x P(Z <= x) = max(x, 0) - |x| P(Z > |x|) of a standard normal Z; P(Z > |x|) is half of
// erfc(|x| / sqrt(2)), by Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
__device__ inline float ExactGelu(float x) {
  const float z = 0.70710678F * fabsf(x);
  const float t = Reciprocal(1.0F + 0.3275911F * z);
  float p = 1.061405429F;
  p = p * t - 1.453152027F;
  p = p * t + 1.421413741F;
  p = p * t - 0.284496736F;
  p = p * t + 0.254829592F;
  const float tail = 0.5F * (p * t) * PowerOf2(-1.4426950409F * z * z);
  return fmaxf(x, 0.0F) - fabsf(x) * tail;
}

template <ActivationKind kKind>
__device__ float Activate(float x) {
  if constexpr (kKind == ActivationKind::kRelu) {
    return fmaxf(x, 0.0F);
  } else if constexpr (kKind == ActivationKind::kSilu) {
    return TimesSigmoid(x, x);
  } else if constexpr (kKind == ActivationKind::kGelu) {
    return ExactGelu(x);
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
    case ActivationKind::kGelu:
      return apply(Activate<ActivationKind::kGelu>);
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
