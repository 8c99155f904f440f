// SPDX-License-Identifier: Apache-2.0
// Which instruction sets this processor and its operating system offer, asked once: of x86-64 by
// CPUID, XGETBV for the registers that the system saves, and a system call that asks for AMX's
// tiles; of AArch64 by what the kernel hands to each program. Those of the other architecture are
// false.
#pragma once

namespace inflight::ops::cpu {

struct CpuFeatures {
  bool avx2 = false;          // with FMA and F16C
  bool avx512 = false;        // F, BW, DQ, VL
  bool avx512_vnni = false;   // and VPDPBUSD
  bool avx512_bf16 = false;   // and VDPBF16PS
  bool amx = false;           // tiles, granted to this process, TDPBF16PS and TDPBSUD
  bool neon = false;          // Advanced SIMD
  bool neon_dotprod = false;  // and SDOT
};

const CpuFeatures& GetCpuFeatures();

}  // namespace inflight::ops::cpu
