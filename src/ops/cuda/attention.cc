// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

template <KernelSet kSet>
Status Attention(const AttentionParams&, Stream&) { return Unimplemented("attention"); }

template Status Attention<KernelSet::kAny>(const AttentionParams&, Stream&);
template Status Attention<KernelSet::kSm90>(const AttentionParams&, Stream&);

}  // namespace inflight::ops::cuda
