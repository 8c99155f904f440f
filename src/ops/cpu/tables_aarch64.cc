// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/cpu.h"
#include "ops/cpu/cpu_features.h"
#include "ops/cpu/table.h"

namespace inflight::ops::cpu {

std::vector<OpTable> OpTables(const ShapeClass& shape) {
  std::vector<OpTable> tables;
  if (shape.head_dim > kMaxHeadDim) return tables;
  const CpuFeatures& features = GetCpuFeatures();
  if (features.neon_dotprod && IsInteger(shape.weight_dtype))
    tables.push_back(Table<kNeonDotprod>());
  if (features.neon) tables.push_back(Table<kNeon>());
  return tables;
}

size_t FastestTable(const ShapeClass&) { return 0; }  // of bf16 there is one

}  // namespace inflight::ops::cpu
