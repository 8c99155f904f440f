// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/attention_decode.cuh"

namespace inflight::ops::cuda {

template Status LaunchDecode<64>(const DecodeArgs&, DType, int, CudaStream&);

}  // namespace inflight::ops::cuda
