// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/gemm_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "base/status_macros.h"

namespace inflight::ops::cuda {
namespace {

cudaDataType_t CudaDType(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF8E4M3:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_32F;
  }
}

Status CudaStatus(cudaError_t error) { return inflight::cuda::ToStatus(error, "filling operands"); }

}  // namespace

Status LtStatus(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return Status::Ok();
  return Internal(fmt::format("{}: {}", what, cublasLtGetStatusString(status)));
}

int32_t AlignmentOfY(const GemmParams& p) {
  const auto bits = reinterpret_cast<uintptr_t>(p.y) |
                    static_cast<uintptr_t>(StrideOf(p)) * SizeOf(p.y_dtype) | 16U;
  return static_cast<int32_t>(bits & (~bits + 1));
}

std::string DescriptionOf(const GemmParams& p) {
  return fmt::format("product of {} [{}, {}] and weights [{}, {}] in {}", DTypeName(p.dtype), p.m,
                     p.k, p.n, p.k, DTypeName(p.y_dtype));
}

Status GemmProblem::Describe(const GemmParams& p, bool fast_accumulation) {
  const auto n = static_cast<uint64_t>(p.n), m = static_cast<uint64_t>(p.m),
             k = static_cast<uint64_t>(p.k);
  const cudaDataType_t dtype = CudaDType(p.dtype);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  RETURN_IF_ERROR(LtStatus(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
  RETURN_IF_ERROR(LtStatus(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                          &transposed, sizeof(transposed))));
  if (p.dtype == DType::kF8E4M3) {
    const int8_t fast = fast_accumulation ? 1 : 0;
    RETURN_IF_ERROR(LtStatus(cublasLtMatmulDescSetAttribute(
        &operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof(fast))));
  }
  RETURN_IF_ERROR(LtStatus(cublasLtMatrixLayoutInit(&w, dtype, k, n, p.k)));
  RETURN_IF_ERROR(LtStatus(cublasLtMatrixLayoutInit(&x, dtype, k, m, p.k)));
  return LtStatus(cublasLtMatrixLayoutInit(&y, CudaDType(p.y_dtype), n, m, StrideOf(p)),
                  "cublasLtMatrixLayoutInit(&y)");
}

Status FillRandomly(std::byte* data, size_t size, DType dtype, CudaStream& stream) {
  constexpr size_t kPattern = size_t{1} << 20;
  std::vector<std::byte> pattern(kPattern);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < kPattern; i += SizeOf(dtype)) {
    const float value = normal(random);
    if (dtype == DType::kF8E4M3) {
      const Float8E4M3 element = Float8E4M3::FromFloat(value);
      std::memcpy(&pattern[i], &element, sizeof(element));
    } else if (dtype == DType::kF16) {
      const Float16 element = Float16::FromFloat(value);
      std::memcpy(&pattern[i], &element, sizeof(element));
    } else {
      const BFloat16 element = BFloat16::FromFloat(value);
      std::memcpy(&pattern[i], &element, sizeof(element));
    }
  }
  size_t filled = std::min(size, kPattern);
  RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(data, pattern.data(), filled, cudaMemcpyHostToDevice, stream.handle())));
  for (; filled < size; filled *= 2)
    RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(data + filled, data, std::min(filled, size - filled),
                                               cudaMemcpyDeviceToDevice, stream.handle())));
  return CudaStatus(cudaStreamSynchronize(stream.handle()));
}

}  // namespace inflight::ops::cuda
