// SPDX-License-Identifier: Apache-2.0
#include "compare.h"

#include <cmath>
#include <cstring>

namespace inflight::ops {

double RoundingOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF16:
      return 0x1p-11;
    default:
      return kUnit;
  }
}

testing::AssertionResult Within(const std::vector<float>& got, const std::vector<float>& want,
                                const std::vector<double>& bound) {
  if (got.size() != want.size() || got.size() != bound.size())
    return testing::AssertionFailure()
           << got.size() << " values, " << want.size() << " wanted, " << bound.size() << " bounds";
  double worst_ratio = 1;
  size_t worst = got.size();
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    const double ratio = error / bound[i];
    if (ratio <= worst_ratio) continue;  // false for NaN
    worst_ratio = std::isnan(ratio) ? HUGE_VAL : ratio;
    worst = i;
    if (std::isnan(ratio)) break;
  }
  if (worst == got.size()) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "worst at " << worst << " of " << got.size() << ": got " << got[worst] << ", want "
         << want[worst] << ", bound " << bound[worst];
}

testing::AssertionResult SameBits(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size())
    return testing::AssertionFailure() << got.size() << " values, " << want.size() << " wanted";
  for (size_t i = 0; i < got.size(); ++i)
    if (std::memcmp(&got[i], &want[i], sizeof(float)) != 0)
      return testing::AssertionFailure()
             << "at " << i << " of " << got.size() << ": got " << got[i] << ", want " << want[i];
  return testing::AssertionSuccess();
}

std::vector<OpTable> VectorTables(const ShapeClass& shape) {
  std::vector<OpTable> tables = CpuOpTables(shape);
  tables.pop_back();
  return tables;
}

OpTable ReferenceTable() { return CpuOpTables({}).back(); }

}  // namespace inflight::ops
