// SPDX-License-Identifier: Apache-2.0
// The tensors of the model that TensorRT-LLM's LLM API serves as `tensorrt_llm` (all_models/llmapi
// of 0.19 to 1.2): text in, text out, parameters under the names of its SamplingParams.
#pragma once

#include <string_view>

#include "contract/outputs.h"
#include "contract/text_inputs.h"

namespace inflight::contract {

inline constexpr std::string_view kLlmApiPrefix = "sampling_param_";
inline constexpr int kLlmApiMaxTokens = 32;  // where none are asked for, as of SamplingParams

// The part that an input plays; one that is not known is refused where it is used.
struct LlmApiInput {
  std::string_view name;
  InputRole role = InputRole::kUnsupported;
  std::string_view llm_name = {};  // of kLlm
};
LlmApiInput LlmApiInputOf(std::string_view name);

// Null: no release has it, or it is never sent.
const Output* FindLlmApiOutput(std::string_view name);

}  // namespace inflight::contract
