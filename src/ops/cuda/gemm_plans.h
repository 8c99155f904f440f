// SPDX-License-Identifier: Apache-2.0
// cuBLASLt: its handle and, per shape, the algorithm that was chosen.
#pragma once

#include <cublasLt.h>

#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

class GemmPlans {
 public:
  static Result<std::unique_ptr<GemmPlans>> Create();
  ~GemmPlans();

 private:
  GemmPlans() = default;
  cublasLtHandle_t handle_ = nullptr;
};

}  // namespace inflight::ops::cuda
