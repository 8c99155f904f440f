// SPDX-License-Identifier: Apache-2.0
// The functions of ops/linear.h, by the library's own e^x, tanh and erf.
#pragma once

#include "ops/linear.h"

namespace inflight::ops::cuda::float32 {

__device__ inline float Activate(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::kRelu:
      return fmaxf(x, 0.0F);
    case ActivationKind::kGelu:
      return 0.5F * x * (1.0F + erff(x * 0.70710678F));
    case ActivationKind::kGeluTanh:
      return 0.5F * x * (1.0F + tanhf(0.79788456F * (x + 0.044715F * x * x * x)));
    case ActivationKind::kSilu:
      return x / (1.0F + expf(-x));
    case ActivationKind::kNone:
      break;
  }
  return x;
}

}  // namespace inflight::ops::cuda::float32
