// SPDX-License-Identifier: Apache-2.0
// For architectures that no kernels are written for.
#include "ops/cpu/cpu.h"
#include "ops/cpu/cpu_features.h"

namespace inflight::ops::cpu {

const CpuFeatures& GetCpuFeatures() {
  static constexpr CpuFeatures kNone;
  return kNone;
}

std::vector<OpTable> OpTables(const ShapeClass&) { return {}; }
size_t FastestTable(const ShapeClass&) { return 0; }

}  // namespace inflight::ops::cpu
