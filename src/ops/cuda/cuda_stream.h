// SPDX-License-Identifier: Apache-2.0
// A CUDA stream and what the operators of one executor share on it. Only files built with CUDA
// include this.
//
// Threads: used by one thread at a time. All memory is taken in Create; nothing is allocated later,
// so that steps can be captured into graphs.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <memory>

#include "ops/backend.h"
#include "tensor/buffer.h"
#include "tensor/cuda_status.h"

namespace inflight::ops::cuda {

class GemmPlans;  // gemm_plans.h: cuBLASLt's handle and the algorithm chosen per shape

inline constexpr size_t kGemmWorkspaceBytes = size_t{32} << 20;

// Byte ranges of the one workspace buffer. Their sizes depend on shape and limits alone.
struct StreamWorkspace {
  std::byte* gemm = nullptr;  // cuBLASLt's; kGemmWorkspaceBytes
  // Sums that CTAs pass to each other in the skinny linears: kSplitBytes, then counters that are 0
  // between kernels.
  float* split = nullptr;
  int32_t* split_counters = nullptr;  // kSplitCounterBytes
  // Attention: the plans of the step, one per window, partial results of split rows, counters that
  // are 0 between kernels.
  std::byte* attention_plans = nullptr;  // [num_attention_plans][AttentionPlanBytes]
  int num_attention_plans = 0;
  size_t attention_plan_bytes = 0;
  std::byte* attention_partials = nullptr;  // AttentionPartialBytes
  int32_t* attention_counters = nullptr;
  std::byte* weights = nullptr;  // one dequantised matrix; integer weights only
  size_t weights_bytes = 0;
  std::byte* gathered = nullptr;  // rows of activations that lm_head reads
  size_t gathered_bytes = 0;
  std::byte* gathered_codes = nullptr;   // the same rows in FP8; FP8 weights only
  std::byte* gathered_scales = nullptr;  // [rows] float32
};

class CudaStream : public Stream {
 public:
  // With `beside`, for kernels of another shape in the order of that stream, which outlives it.
  static Result<std::unique_ptr<CudaStream>> Create(Device& device, const ShapeClass& shape,
                                                    int max_num_tokens, int max_num_rows,
                                                    OpChoice choice = OpChoice::kFastest,
                                                    const CudaStream* beside = nullptr);
  ~CudaStream() override;

  Status Synchronize() override;

  cudaStream_t handle() const { return handle_; }
  int num_sms() const { return gpu_.num_sms; }
  const inflight::cuda::DeviceProperties& gpu() const { return gpu_; }
  const StreamWorkspace& workspace() const { return workspace_; }
  GemmPlans& gemm_plans() { return *gemm_plans_; }
  // OpChoice::kFixed: a token's results have the same bits whatever is computed beside it.
  bool is_fixed() const { return is_fixed_; }

 private:
  CudaStream(Device& device, OpChoice choice);

  cudaStream_t handle_ = nullptr;
  bool owns_handle_ = true;
  const inflight::cuda::DeviceProperties& gpu_;  // the device's
  const bool is_fixed_;
  Buffer buffer_;
  StreamWorkspace workspace_;
  std::unique_ptr<GemmPlans> gemm_plans_;
};

inline CudaStream& AsCuda(Stream& stream) { return static_cast<CudaStream&>(stream); }

}  // namespace inflight::ops::cuda
