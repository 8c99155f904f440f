// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/decode_layers_kernel.cuh"

namespace inflight::ops::cuda::decode_layers {

Status LaunchInt8(const Args& args, DType dtype, DType kv_dtype, int head_dim, CudaStream& stream) {
  return LaunchForm<Form::kInt8>(args, dtype, kv_dtype, head_dim, stream);
}

}  // namespace inflight::ops::cuda::decode_layers
