// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/cuda_stream.h"

#include <algorithm>

#include "base/status_macros.h"
#include "ops/cuda/cuda.h"
#include "ops/cuda/gemm_plans.h"
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kSplitBytes = size_t{16} << 20;
constexpr size_t kSplitCounterBytes = size_t{64} << 10;
constexpr int kMaxSms = 192;  // more than any GPU of compute capability 8.0 to 10.0 has

// Places the workspace from `base` on and returns its size; a null base only measures.
size_t LayOut(const ShapeClass& shape, int max_num_tokens, int max_num_rows, std::byte* base,
              StreamWorkspace& out) {
  size_t size = 0;
  const auto place = [&](size_t num_bytes) {
    std::byte* at = base == nullptr ? nullptr : base + size;
    size += (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  };
  if (shape.dtype == DType::kF32) return 0;  // its kernels (float32/kernels.h) keep nothing there
  out.gemm = place(kGemmWorkspaceBytes);
  out.split = reinterpret_cast<float*>(place(kSplitBytes));
  out.split_counters = reinterpret_cast<int32_t*>(place(kSplitCounterBytes));
  out.num_attention_plans = shape.num_windows;
  out.attention_plan_bytes = AttentionPlanBytes(max_num_rows, max_num_tokens);
  out.attention_plans =
      place(static_cast<size_t>(out.num_attention_plans) * out.attention_plan_bytes);
  out.attention_partials = place(AttentionPartialBytes(shape, kMaxSms, max_num_rows));
  out.attention_counters =
      reinterpret_cast<int32_t*>(place(AttentionCounterBytes(shape, max_num_rows)));
  if (IsInteger(shape.weight_dtype)) {
    const int64_t qkv = int64_t{shape.num_heads + 2 * shape.num_kv_heads} * shape.head_dim;
    const int64_t widest = std::max(qkv, 2 * int64_t{shape.intermediate_size});
    out.weights_bytes = static_cast<size_t>(widest * shape.hidden_size) * SizeOf(shape.dtype);
    out.weights = place(out.weights_bytes);
  }
  out.gathered_bytes =
      static_cast<size_t>(int64_t{max_num_rows} * shape.hidden_size) * SizeOf(shape.dtype);
  out.gathered = place(out.gathered_bytes);
  if (shape.weight_dtype == DType::kF8E4M3) {
    out.gathered_codes = place(static_cast<size_t>(int64_t{max_num_rows} * shape.hidden_size));
    out.gathered_scales = place(static_cast<size_t>(max_num_rows) * sizeof(float));
  }
  return size;
}

}  // namespace

uint64_t StreamBytes(const ShapeClass& shape, int max_num_tokens, int max_num_rows) {
  StreamWorkspace unused;
  return LayOut(shape, max_num_tokens, max_num_rows, nullptr, unused);
}

CudaStream::CudaStream(Device& device, OpChoice choice)
    : Stream(device), gpu_(device.cuda()), is_fixed_(choice == OpChoice::kFixed) {}

Result<std::unique_ptr<CudaStream>> CudaStream::Create(Device& device, const ShapeClass& shape,
                                                       int max_num_tokens, int max_num_rows,
                                                       OpChoice choice, const CudaStream* beside) {
  std::unique_ptr<CudaStream> stream(new CudaStream(device, choice));
  RETURN_IF_ERROR(inflight::cuda::ToStatus(cudaSetDevice(device.cuda().index), "cudaSetDevice"));
  stream->owns_handle_ = beside == nullptr;
  if (beside != nullptr)
    stream->handle_ = beside->handle_;
  else
    RETURN_IF_ERROR(inflight::cuda::ToStatus(
        cudaStreamCreateWithFlags(&stream->handle_, cudaStreamNonBlocking), "cudaStreamCreate"));
  ASSIGN_OR_RETURN(stream->buffer_,
                   Buffer::Allocate(device, "kernels' workspace",
                                    StreamBytes(shape, max_num_tokens, max_num_rows)));
  LayOut(shape, max_num_tokens, max_num_rows, stream->buffer_.data(), stream->workspace_);
  ASSIGN_OR_RETURN(stream->gemm_plans_, GemmPlans::Create(device, choice));
  return stream;
}

CudaStream::~CudaStream() {
  if (handle_ != nullptr && owns_handle_) cudaStreamDestroy(handle_);
}

Status CudaStream::Synchronize() {
  return inflight::cuda::ToStatus(cudaStreamSynchronize(handle_), "cudaStreamSynchronize");
}

Result<std::unique_ptr<Stream>> MakeStream(Device& device, const ShapeClass& shape,
                                           int max_num_tokens, int max_num_rows, OpChoice choice) {
  ASSIGN_OR_RETURN(auto stream,
                   CudaStream::Create(device, shape, max_num_tokens, max_num_rows, choice));
  return std::unique_ptr<Stream>(std::move(stream));
}

}  // namespace inflight::ops::cuda
