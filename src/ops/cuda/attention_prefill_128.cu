// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/attention_prefill.cuh"

namespace inflight::ops::cuda {

template Status LaunchPrefill<128>(const AttentionArgs&, DType, int, CudaStream&);

}  // namespace inflight::ops::cuda
