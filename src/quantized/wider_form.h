// SPDX-License-Identifier: Apache-2.0
// The same weight in a form that holds more: codes of more bits, smaller groups, offsets.
#pragma once

#include "quantized/module.h"

namespace inflight::quantized {

// What a form's codes, scales and offsets are, without their numbers.
struct FormKind {
  DType codes = DType::kI8;
  int64_t group_size = 0;  // 0: a scale for each row
  bool has_offsets = false;
  ScaleBlocks blocks = {};  // empty: scales and offsets are float32

  bool has_groups() const { return group_size > 0; }
  bool operator==(const FormKind&) const = default;
};
FormKind KindOf(const NativeForm& form);

// The narrowest kind that holds integers of both, of rows of `in_features`, its scales in blocks
// where both are one kind; none where groups of both have no common size that the engine has.
std::optional<FormKind> CommonKind(const FormKind& a, const FormKind& b, int64_t in_features);

// `form` as one of `kind`, which holds it, of a matrix that has both as its parts: its codes,
// scales and offsets stand for the same numbers.
NativeForm InKind(const NativeForm& form, const FormKind& kind);

}  // namespace inflight::quantized
