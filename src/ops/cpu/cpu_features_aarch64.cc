// SPDX-License-Identifier: Apache-2.0
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "ops/cpu/cpu_features.h"

namespace inflight::ops::cpu {

const CpuFeatures& GetCpuFeatures() {
  static const CpuFeatures features = [] {
    const unsigned long capabilities = getauxval(AT_HWCAP);
    CpuFeatures found;
    found.neon = (capabilities & HWCAP_ASIMD) != 0;
    found.neon_dotprod = found.neon && (capabilities & HWCAP_ASIMDDP) != 0;
    return found;
  }();
  return features;
}

}  // namespace inflight::ops::cpu
