// SPDX-License-Identifier: Apache-2.0
// What L2 is told of lines that a kernel reads: weights pass once, activations are read by many
// CTAs.
#pragma once

#include <cstdint>

namespace inflight::ops::cuda {

__device__ inline uint64_t EvictFirst() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ inline uint64_t EvictLast() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

}  // namespace inflight::ops::cuda
