// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

template <KernelSet kSet>
Status QkvRopeKv(const QkvRopeKvParams&, Stream&) { return Unimplemented("qkv"); }
template <KernelSet kSet>
Status Linear(const LinearParams&, Stream&) { return Unimplemented("linear"); }
template <KernelSet kSet>
Status GatedLinear(const GatedLinearParams&, Stream&) { return Unimplemented("gated"); }
template <KernelSet kSet>
Status LmHead(const LmHeadParams&, Stream&) { return Unimplemented("head"); }

template Status QkvRopeKv<KernelSet::kAny>(const QkvRopeKvParams&, Stream&);
template Status QkvRopeKv<KernelSet::kSm90>(const QkvRopeKvParams&, Stream&);
template Status Linear<KernelSet::kAny>(const LinearParams&, Stream&);
template Status Linear<KernelSet::kSm90>(const LinearParams&, Stream&);
template Status GatedLinear<KernelSet::kAny>(const GatedLinearParams&, Stream&);
template Status GatedLinear<KernelSet::kSm90>(const GatedLinearParams&, Stream&);
template Status LmHead<KernelSet::kAny>(const LmHeadParams&, Stream&);
template Status LmHead<KernelSet::kSm90>(const LmHeadParams&, Stream&);

}  // namespace inflight::ops::cuda
