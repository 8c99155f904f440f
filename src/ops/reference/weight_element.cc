// SPDX-License-Identifier: Apache-2.0
#include "ops/reference/weight_element.h"

#include <cmath>

#include "base/check.h"
#include "tensor/element.h"

namespace inflight::ops::reference {
namespace {

// Where [n, k] stands in an array [N / 64][K / group][64][group], K padded to whole groups. The
// layouts' [4][16] are the 64 rows of a panel.
int64_t PanelIndex(const Weight& weight, int64_t n, int64_t k, int64_t group) {
  const int64_t num_groups = (weight.in_features + group - 1) / group;
  return ((n / 64 * num_groups + k / group) * 64 + n % 64) * group + k % group;
}

// Of the low four bits.
int8_t TwiceFloat4(int bits) {
  return static_cast<int8_t>(kTwiceE2M1[static_cast<size_t>(bits & 0xf)]);
}

}  // namespace

int8_t IntegerAt(const Weight& weight, int64_t n, int64_t k) {
  const auto* bytes = static_cast<const uint8_t*>(weight.data);
  switch (weight.layout) {
    case WeightLayout::kRowMajor: {
      const int64_t i = n * weight.in_features + k;
      if (weight.dtype == DType::kI8) return static_cast<int8_t>(bytes[i]);
      if (weight.dtype == DType::kF4E2M1) return TwiceFloat4(bytes[i / 2] >> i % 2 * 4);
      return static_cast<int8_t>(LoadInt4(weight.data, i));
    }
    case WeightLayout::kPanel64Vnni4:
      return static_cast<int8_t>(bytes[PanelIndex(weight, n, k, 4)] - 128);
    case WeightLayout::kPanel64Nibbles: {
      // Eight elements are four bytes: the first four are their low halves.
      const int64_t in_group = k % 8;
      const int64_t group = PanelIndex(weight, n, k, 8) / 8;
      const uint8_t byte = bytes[group * 4 + in_group % 4];
      const int code = in_group < 4 ? byte & 0xf : byte >> 4;
      return weight.dtype == DType::kF4E2M1 ? TwiceFloat4(code) : static_cast<int8_t>(code - 8);
    }
    default:
      CHECK(false);
  }
}

float ElementAt(const Weight& weight, int64_t n, int64_t k) {
  if (IsInteger(weight.dtype)) {
    const int64_t group = ScaleIndex(weight, n, k);
    return std::fma(static_cast<float>(IntegerAt(weight, n, k)), ScaleAt(weight, group),
                    OffsetAt(weight, group));
  }
  if (IsGroupedFp8(weight)) {
    Weight codes = weight;
    codes.group_size = 0;
    return ElementAt(codes, n, k) * ScaleAt(weight, ScaleIndex(weight, n, k));
  }
  switch (weight.layout) {
    case WeightLayout::kRowMajor:
      return LoadFloat(weight.data, weight.dtype, n * weight.in_features + k);
    case WeightLayout::kPanel64:
      return LoadFloat(weight.data, weight.dtype, PanelIndex(weight, n, k, 1));
    case WeightLayout::kPanel64Vnni2:
      return LoadFloat(weight.data, weight.dtype, PanelIndex(weight, n, k, 2));
    default:
      CHECK(false);
  }
}

}  // namespace inflight::ops::reference
