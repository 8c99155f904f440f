// SPDX-License-Identifier: Apache-2.0
// Activation functions (ops/linear.h) of float32 values on the device. Absolute error below
// 2^-20 |x|: exp and division are the fast ones.
#pragma once

#include "ops/linear.h"

namespace inflight::ops::cuda {

template <ActivationKind kKind>
__device__ float Activate(float x) {
  if constexpr (kKind == ActivationKind::kRelu) {
    return fmaxf(x, 0.0F);
  } else if constexpr (kKind == ActivationKind::kSilu) {
    return __fdividef(x, 1.0F + __expf(-x));
  } else if constexpr (kKind == ActivationKind::kGeluTanh) {
    // (1 + tanh z) / 2 = 1 / (1 + e^-2z), z = sqrt(2 / pi) (x + 0.044715 x^3)
    const float twice_z = 1.5957691216F * (x + 0.044715F * x * x * x);
    return __fdividef(x, 1.0F + __expf(-twice_z));
  } else {
    return x;
  }
}

// Of a kind known at run time only; the branch is the same for all threads.
__device__ inline float Activate(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::kRelu:
      return Activate<ActivationKind::kRelu>(x);
    case ActivationKind::kGeluTanh:
      return Activate<ActivationKind::kGeluTanh>(x);
    case ActivationKind::kSilu:
      return Activate<ActivationKind::kSilu>(x);
    case ActivationKind::kNone:
      break;
  }
  return x;
}

}  // namespace inflight::ops::cuda
