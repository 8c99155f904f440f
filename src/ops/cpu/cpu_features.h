// SPDX-License-Identifier: Apache-2.0
// Which instruction sets this processor and its operating system offer: CPUID, and XGETBV for the
// registers that the system saves. Asked once; false everywhere but on x86-64.
#pragma once

namespace inflight::ops::cpu {

struct CpuFeatures {
  bool avx2 = false;         // with FMA and F16C
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_vnni = false;  // and VPDPBUSD
  bool avx512_bf16 = false;  // and VDPBF16PS
};

const CpuFeatures& GetCpuFeatures();

}  // namespace inflight::ops::cpu
