// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace inflight::ops::cuda {

// Two f8e4m3 in the lower half of `pair`, as f16; exact.
__device__ inline uint32_t HalvesOfFp8(uint32_t pair) {
#if __CUDA_ARCH__ >= 890
  uint32_t out;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(out) : "h"(static_cast<uint16_t>(pair)));
  return out;
#else
  // Exponents move from bias 7 to bias 15, which divides by 2^8. NaN becomes 480.
  const uint32_t spread = __byte_perm(pair, 0, 0x1404);
  const uint32_t bits = (spread & 0x80008000U) | ((spread >> 1) & 0x3f803f80U);
  const __half2 v =
      __hmul2(reinterpret_cast<const __half2&>(bits), __floats2half2_rn(256.0F, 256.0F));
  return reinterpret_cast<const uint32_t&>(v);
#endif
}

}  // namespace inflight::ops::cuda
