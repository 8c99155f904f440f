// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/decode_layers_kernel.cuh"

namespace inflight::ops::cuda::decode_layers {

bool HasKernels() { return HasBody(Kernel<__half, Form::kInt4, false, 128>); }

Status LaunchInt4(const Args& args, DType dtype, DType kv_dtype, int head_dim, CudaStream& stream) {
  return LaunchForm<Form::kInt4>(args, dtype, kv_dtype, head_dim, stream);
}

}  // namespace inflight::ops::cuda::decode_layers
