// SPDX-License-Identifier: Apache-2.0
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "ops/cpu/cpu_features.h"

namespace inflight::ops::cpu {
namespace {

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers Cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);  // zeros beyond the last leaf
  return r;
}

uint64_t EnabledStates() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool All(uint32_t reg, uint32_t bits) { return (reg & bits) == bits; }

// Linux saves tiles only of processes that asked (Documentation/arch/x86/xstate.rst); the threads
// of a process share the answer. Refused where the kernel has no such call, or where a thread has
// an alternate signal stack too small for tiles.
bool MayUseTiles() {
#ifdef SYS_arch_prctl
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

CpuFeatures Detect() {
  constexpr uint64_t kYmmStates = 0x6;   // XMM, YMM
  constexpr uint64_t kZmmStates = 0xe6;  // and masks, upper ZMM, ZMM16-31
  constexpr uint64_t kTileStates = 0x60000;
  constexpr uint32_t kAmx = 1U << 22 | 1U << 24 | 1U << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
  const Registers leaf1 = Cpuid(1, 0);
  if (!All(leaf1.ecx, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C)) return {};
  const uint64_t states = EnabledStates();
  const Registers leaf7 = Cpuid(7, 0);
  CpuFeatures features;
  features.avx2 = (states & kYmmStates) == kYmmStates && All(leaf7.ebx, bit_AVX2);
  features.avx512 = features.avx2 && (states & kZmmStates) == kZmmStates &&
                    All(leaf7.ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL);
  features.avx512_vnni = features.avx512 && All(leaf7.ecx, bit_AVX512VNNI);
  features.avx512_bf16 = features.avx512 && All(Cpuid(7, 1).eax, bit_AVX512BF16);
  features.amx = features.avx512_bf16 && features.avx512_vnni &&
                 (states & kTileStates) == kTileStates && All(leaf7.edx, kAmx) && MayUseTiles();
  return features;
}

}  // namespace

const CpuFeatures& GetCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

}  // namespace inflight::ops::cpu
