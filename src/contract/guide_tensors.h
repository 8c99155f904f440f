// SPDX-License-Identifier: Apache-2.0
// The guide of a request: guided_decoding_guide_type and guided_decoding_guide, as TensorRT-LLM
// 0.19 has them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "contract/tensor.h"
#include "inflight/guide.h"

namespace inflight::contract {

// Names of the two at the LLM.
inline constexpr std::string_view kGuideType = "guided_decoding_guide_type";
inline constexpr std::string_view kGuide = "guided_decoding_guide";

struct AskedGuide {
  GuideSpec spec;
  std::string field;  // the tensor that errors of the guide are about, as the client calls it
};

// None where both are absent, or say nothing. kInvalidArgument and kUnimplemented name the tensor
// and the types that are supported.
Result<std::optional<AskedGuide>> ReadGuide(const Tensor* type, const Tensor* guide);

}  // namespace inflight::contract
