// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/gemm_plans.h"

namespace inflight::ops::cuda {

Result<std::unique_ptr<GemmPlans>> GemmPlans::Create() {
  std::unique_ptr<GemmPlans> plans(new GemmPlans());
  const cublasStatus_t status = cublasLtCreate(&plans->handle_);
  if (status != CUBLAS_STATUS_SUCCESS)
    return Internal(std::string("cublasLtCreate: ") + cublasLtGetStatusString(status));
  return plans;
}

GemmPlans::~GemmPlans() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

Status GemmCublasLt(const GemmParams&, CudaStream&) { return Unimplemented("gemm"); }

}  // namespace inflight::ops::cuda
