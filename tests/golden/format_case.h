// SPDX-License-Identifier: Apache-2.0
// A golden model in a format of builder/weight_formats.h, on any device.
#pragma once

#include <string>

#include "builder/weight_formats.h"
#include "tensor/device.h"

namespace inflight::golden {

inline constexpr int kFormatGroupSize = 16;  // columns, which divide those of many tiny models

struct FormatCase {
  std::string model;
  builder::WeightFormat format;
  std::string name() const { return std::string(format.name) + "_" + model; }
};

// Opens the model in the format and expects logits that follow transformers' of the plain one as
// far as the format lets them. Computed in float32 on a CPU, in bfloat16 on a GPU.
void ExpectLogitsFollow(const FormatCase& of, Device& device);

}  // namespace inflight::golden
