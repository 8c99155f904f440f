// SPDX-License-Identifier: Apache-2.0
#include "contract/text_inputs.h"

#include <algorithm>

#include "contract/llm_inputs.h"

namespace inflight::contract {
namespace {

using enum DataType;
using Role = InputRole;

const std::vector<TextInput>& BeforeParameters() {
  static const std::vector<TextInput> rows = {
      {"text_input", Role::kQuery, "", "QUERY", kBytes, {-1}, /*is_required=*/true},
      {"decoder_text_input", Role::kUnsupported, "", "DECODER_QUERY", kBytes, {-1}},
      {"max_tokens", Role::kLlm, "request_output_len", "REQUEST_OUTPUT_LEN", kInt32, {-1}, true},
      {"bad_words", Role::kBadWords, "", "BAD_WORDS_DICT", kBytes, {-1}},
      {"stop_words", Role::kStopWords, "", "STOP_WORDS_DICT", kBytes, {-1}},
      {"end_id", Role::kLlm, "end_id", "END_ID", kInt32},
      {"pad_id", Role::kLlm, "pad_id", "PAD_ID", kInt32},
  };
  return rows;
}

const std::vector<TextInput>& AfterParameters() {
  static const std::vector<TextInput> rows = {
      {"stream", Role::kLlm, "streaming", "", kBool},
      {"prompt_embedding_table", Role::kLlm, "prompt_embedding_table", "", kFp16, {-1, -1}},
      {"prompt_vocab_size", Role::kLlm, "prompt_vocab_size", "", kInt32},
      {"lora_task_id", Role::kLlm, "lora_task_id", "", kUint64},
      {"lora_weights", Role::kLlm, "lora_weights", "", kFp16, {-1, -1}},
      {"lora_config", Role::kLlm, "lora_config", "", kInt32, {-1, 3}},
      {"embedding_bias_words", Role::kBiasWords, "", "EMBEDDING_BIAS_WORDS", kBytes, {-1}},
      {"embedding_bias_weights", Role::kBiasWeights, "", "EMBEDDING_BIAS_WEIGHTS", kFp32, {-1}},
      {"messages", Role::kMessages, "", "MESSAGES", kBytes, {-1}},  // ours
      // Of later releases, and of BLS alone.
      {"image_bytes_input", Role::kUnsupported},
      {"image_input", Role::kUnsupported},
      {"image_url_input", Role::kUnsupported},
      {"num_draft_tokens", Role::kSpeculation},
      {"prompt_table_extra_id", Role::kLlm, "prompt_table_extra_ids"},
      {"use_draft_logits", Role::kSpeculation},
      {"video_bytes_input", Role::kUnsupported},
  };
  return rows;
}

// The parameters, and what asks for facts, in the order of their places.
std::vector<TextInput> Parameters() {
  std::vector<const LlmInput*> inputs;
  for (const LlmInput& input : LlmInputTable()) {
    const bool is_other_name =
        input.parameter != nullptr && input.name != input.parameter->llm_name;
    if (input.text_place > 0 && !is_other_name) inputs.push_back(&input);
  }
  std::ranges::stable_sort(inputs, {}, &LlmInput::text_place);
  std::vector<TextInput> rows;
  for (const LlmInput* input : inputs) {
    const bool is_declared = input->form != Form::kUndeclared;
    rows.push_back({.name = input->parameter ? input->parameter->text_name : input->name,
                    .llm_name = input->name,
                    .type = is_declared ? input->type : kInvalid});
  }
  return rows;
}

std::vector<TextInput> MakeTable() {
  std::vector<TextInput> table = BeforeParameters();
  for (TextInput& row : Parameters()) table.push_back(std::move(row));
  for (const TextInput& row : AfterParameters()) table.push_back(row);
  return table;
}

}  // namespace

std::span<const TextInput> TextInputTable() {
  static const std::vector<TextInput> table = MakeTable();
  return table;
}

const TextInput* FindTextInput(std::string_view name) {
  const auto table = TextInputTable();
  const auto found = std::ranges::find(table, name, &TextInput::name);
  return found == table.end() ? nullptr : &*found;
}

}  // namespace inflight::contract
