// SPDX-License-Identifier: Apache-2.0
// The table of what the ensemble and `tensorrt_llm_bls` may be sent, by any release: the part that
// each input plays on its way to preprocessing or to the LLM. The parameters of
// parameters/parameters.h are rows of it under their names there.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "contract/tensor.h"

namespace inflight::contract {

// Where an input goes.
enum class InputRole : uint8_t {
  kQuery,
  kMessages,  // a conversation, in place of kQuery
  kStopWords,
  kBadWords,
  kBiasWords,
  kBiasWeights,
  kUnsupported,  // decoder prompts, images, videos: only empty ones pass
  kSpeculation,  // of BLS: how many tokens its draft model proposes, and how they are judged
  kOnlyOne,      // how many answers are made to choose from: only 1 passes
  kLlm,          // an input of the LLM, under its name there
};

struct TextInput {
  std::string_view name;
  InputRole role = InputRole::kLlm;
  std::string_view llm_name = {};            // of kLlm
  std::string_view preprocessing_name = {};  // where the ensemble gives it to preprocessing
  // As the ensemble made from an engine declares it; kInvalid: it does not.
  DataType type = DataType::kInvalid;
  std::vector<int64_t> dims = {1};
  bool is_required = false;
};

// In the order in which a generated ensemble declares them.
std::span<const TextInput> TextInputTable();
const TextInput* FindTextInput(std::string_view name);  // null: no release has it

}  // namespace inflight::contract
