// SPDX-License-Identifier: Apache-2.0
// Stands in for the device's sampler in builds without CUDA, where there is no device to pass.
#include "base/check.h"
#include "decoding/cuda/device_sampler.h"

namespace inflight::decoding {

Result<std::unique_ptr<DeviceSampler>> DeviceSampler::Create(Device&, int, int, bool) {
  CHECK(false);
}
uint64_t DeviceSampler::Bytes(int, int) { return 0; }
Status DeviceSampler::Setup(int, const SamplingRule&, std::span<const TokenId>, Stream&) {
  CHECK(false);
}
Status DeviceSampler::Sample(const DeviceSampleParams&, Stream&) const { CHECK(false); }
Status DeviceSampler::FindBest(const DeviceSampleParams&, int, BestLogits*, Stream&) const {
  CHECK(false);
}

}  // namespace inflight::decoding
