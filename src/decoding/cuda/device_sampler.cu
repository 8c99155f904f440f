// SPDX-License-Identifier: Apache-2.0
#include "decoding/cuda/device_sampler.h"

namespace inflight::decoding {

Result<std::unique_ptr<DeviceSampler>> DeviceSampler::Create(Device&, int, int) {
  return Unimplemented("sampling on the device");
}
uint64_t DeviceSampler::Bytes(int, int) { return 0; }
Status DeviceSampler::Setup(int, const SamplingRule&, Stream&) {
  return Unimplemented("sampling on the device");
}
Status DeviceSampler::Sample(const DeviceSampleParams&, Stream&) const {
  return Unimplemented("sampling on the device");
}

}  // namespace inflight::decoding
