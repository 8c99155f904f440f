// SPDX-License-Identifier: Apache-2.0
#include "contract/model_tables.h"

#include <algorithm>

#include "contract/llm_inputs.h"
#include "contract/outputs.h"
#include "contract/text_inputs.h"

namespace inflight::contract {
namespace {

using Specs = std::vector<TensorSpec>;
using Links = std::vector<TensorLink>;
using enum DataType;

constexpr bool kOptional = true;

TensorSpec SpecOf(const LlmInput& input) {
  TensorSpec spec = {.name = input.name, .type = input.type, .dims = {1}};
  switch (input.form) {
    case Form::kRequired:
      break;
    case Form::kRequiredScalar:
      spec.is_scalar = true;
      break;
    case Form::kRequiredIds:
      spec.dims = {-1};
      spec.is_ragged = true;
      break;
    case Form::kOne:
      spec.optional = true;
      break;
    case Form::kScalar:
      spec.optional = spec.is_scalar = true;
      break;
    case Form::kVector:
      spec.dims = {-1};
      spec.optional = spec.is_ragged = true;
      break;
    case Form::kWords:
      spec.dims = {2, -1};
      spec.optional = spec.is_ragged = true;
      break;
    case Form::kMatrix:
      spec.dims = {-1, -1};
      spec.optional = spec.is_ragged = true;
      break;
    case Form::kTriples:
      spec.dims = {-1, 3};
      spec.optional = spec.is_ragged = true;
      break;
    case Form::kUndeclared:
      break;
  }
  return spec;
}

// The rows that have a place, in the order of places.
Specs DeclaredOutputs(int Output::*place) {
  std::vector<const Output*> declared;
  for (const Output& output : OutputTable()) {
    if (output.*place > 0) declared.push_back(&output);
  }
  std::ranges::stable_sort(declared, {}, [place](const Output* output) { return output->*place; });
  Specs specs;
  for (const Output* output : declared) specs.push_back({output->name, output->type, output->dims});
  return specs;
}

}  // namespace

std::span<const TensorSpec> PreprocessingInputs() {
  static const Specs specs = {
      {"QUERY", kBytes, {-1}},
      {"DECODER_QUERY", kBytes, {-1}, kOptional},
      {"REQUEST_OUTPUT_LEN", kInt32, {-1}},
      {"BAD_WORDS_DICT", kBytes, {-1}, kOptional},
      {"STOP_WORDS_DICT", kBytes, {-1}, kOptional},
      {"EMBEDDING_BIAS_WORDS", kBytes, {-1}, kOptional},
      {"EMBEDDING_BIAS_WEIGHTS", kFp32, {-1}, kOptional},
      {"END_ID", kInt32, {-1}, kOptional},
      {"PAD_ID", kInt32, {-1}, kOptional},
      {"MESSAGES", kBytes, {-1}, kOptional},
  };
  return specs;
}

std::span<const TensorSpec> PreprocessingOutputs() {
  static const Specs specs = {
      {"INPUT_ID", kInt32, {-1}},           {"REQUEST_INPUT_LEN", kInt32, {1}},
      {"DECODER_INPUT_ID", kInt32, {-1}},   {"REQUEST_DECODER_INPUT_LEN", kInt32, {1}},
      {"BAD_WORDS_IDS", kInt32, {2, -1}},   {"STOP_WORDS_IDS", kInt32, {2, -1}},
      {"REQUEST_OUTPUT_LEN", kInt32, {-1}}, {"EMBEDDING_BIAS", kFp32, {-1}},
      {"OUT_END_ID", kInt32, {-1}},         {"OUT_PAD_ID", kInt32, {-1}},
  };
  return specs;
}

std::span<const TensorSpec> LlmInputs() {
  static const Specs specs = [] {
    Specs declared;
    for (const LlmInput& input : LlmInputTable()) {
      if (input.form != Form::kUndeclared) declared.push_back(SpecOf(input));
    }
    return declared;
  }();
  return specs;
}

std::span<const TensorSpec> LlmOutputs() {
  static const Specs specs = DeclaredOutputs(&Output::llm_place);
  return specs;
}

std::span<const TensorSpec> PostprocessingInputs() {
  static const Specs specs = {
      {"TOKENS_BATCH", kInt32, {-1, -1}},
      {"SEQUENCE_LENGTH", kInt32, {-1}},
      {"CUM_LOG_PROBS", kFp32, {-1}, kOptional},
      {"OUTPUT_LOG_PROBS", kFp32, {-1, -1}, kOptional},
      {"CONTEXT_LOGITS", kFp32, {-1, -1}, kOptional},
      {"GENERATION_LOGITS", kFp32, {-1, -1, -1}, kOptional},
  };
  return specs;
}

std::span<const TensorSpec> PostprocessingOutputs() {
  static const Specs specs = {
      {"OUTPUT", kBytes, {-1}},
      {"OUT_CUM_LOG_PROBS", kFp32, {-1}},
      {"OUT_OUTPUT_LOG_PROBS", kFp32, {-1, -1}},
      {"OUT_CONTEXT_LOGITS", kFp32, {-1, -1}},
      {"OUT_GENERATION_LOGITS", kFp32, {-1, -1, -1}},
  };
  return specs;
}

std::span<const TensorSpec> EnsembleInputs() {
  static const Specs specs = [] {
    Specs declared;
    for (const TextInput& input : TextInputTable()) {
      if (input.type == kInvalid) continue;
      declared.push_back({input.name, input.type, input.dims, /*optional=*/!input.is_required});
    }
    return declared;
  }();
  return specs;
}

std::span<const TensorSpec> EnsembleOutputs() {
  static const Specs specs = DeclaredOutputs(&Output::text_place);
  return specs;
}

std::span<const TensorLink> PreprocessingStepInputs() {
  static const Links links = [] {
    Links linked;
    for (const TextInput& input : TextInputTable()) {
      if (!input.preprocessing_name.empty()) {
        linked.push_back({input.preprocessing_name, input.name});
      }
    }
    return linked;
  }();
  return links;
}

std::span<const TensorLink> PreprocessingStepOutputs() {
  static const Links links = {
      {"REQUEST_INPUT_LEN", "_REQUEST_INPUT_LEN"},
      {"INPUT_ID", "_INPUT_ID"},
      {"REQUEST_DECODER_INPUT_LEN", "_REQUEST_DECODER_INPUT_LEN"},
      {"DECODER_INPUT_ID", "_DECODER_INPUT_ID"},
      {"REQUEST_OUTPUT_LEN", "_REQUEST_OUTPUT_LEN"},
      {"STOP_WORDS_IDS", "_STOP_WORDS_IDS"},
      {"BAD_WORDS_IDS", "_BAD_WORDS_IDS"},
      {"EMBEDDING_BIAS", "_EMBEDDING_BIAS"},
      {"OUT_END_ID", "_PREPROCESSOR_END_ID"},
      {"OUT_PAD_ID", "_PREPROCESSOR_PAD_ID"},
  };
  return links;
}

std::span<const TensorLink> LlmStepInputs() {
  static const Links made_by_preprocessing = {
      {"input_ids", "_INPUT_ID"},
      {"decoder_input_ids", "_DECODER_INPUT_ID"},
      {"input_lengths", "_REQUEST_INPUT_LEN"},
      {"decoder_input_lengths", "_REQUEST_DECODER_INPUT_LEN"},
      {"request_output_len", "_REQUEST_OUTPUT_LEN"},
      {"end_id", "_PREPROCESSOR_END_ID"},
      {"pad_id", "_PREPROCESSOR_PAD_ID"},
      {"embedding_bias", "_EMBEDDING_BIAS"},
      {"stop_words_list", "_STOP_WORDS_IDS"},
      {"bad_words_list", "_BAD_WORDS_IDS"},
  };
  static const Links links = [] {
    Links linked = made_by_preprocessing;
    for (const TextInput& input : TextInputTable()) {
      const bool is_declared = input.type != kInvalid;
      if (is_declared && !input.llm_name.empty() && input.preprocessing_name.empty()) {
        linked.push_back({input.llm_name, input.name});
      }
    }
    return linked;
  }();
  return links;
}

std::span<const TensorLink> LlmStepOutputs() {
  static const Links for_postprocessing = {
      {"output_ids", "_TOKENS_BATCH"},       {"sequence_length", "_SEQUENCE_LENGTH"},
      {"cum_log_probs", "_CUM_LOG_PROBS"},   {"output_log_probs", "_OUTPUT_LOG_PROBS"},
      {"context_logits", "_CONTEXT_LOGITS"}, {"generation_logits", "_GENERATION_LOGITS"},
  };
  static const Links links = [] {
    Links linked = for_postprocessing;
    for (const Output& output : OutputTable()) {
      const bool passes_by = output.llm_place > 0 && output.text_place > 0;
      if (passes_by && !output.passes_postprocessing) linked.push_back({output.name, output.name});
    }
    return linked;
  }();
  return links;
}

std::span<const TensorLink> PostprocessingStepInputs() {
  static const Links links = {
      {"TOKENS_BATCH", "_TOKENS_BATCH"},           {"CUM_LOG_PROBS", "_CUM_LOG_PROBS"},
      {"OUTPUT_LOG_PROBS", "_OUTPUT_LOG_PROBS"},   {"CONTEXT_LOGITS", "_CONTEXT_LOGITS"},
      {"GENERATION_LOGITS", "_GENERATION_LOGITS"}, {"SEQUENCE_LENGTH", "_SEQUENCE_LENGTH"},
  };
  return links;
}

std::span<const TensorLink> PostprocessingStepOutputs() {
  static const Links links = {
      {"OUTPUT", "text_output"},
      {"OUT_CUM_LOG_PROBS", "cum_log_probs"},
      {"OUT_OUTPUT_LOG_PROBS", "output_log_probs"},
      {"OUT_CONTEXT_LOGITS", "context_logits"},
      {"OUT_GENERATION_LOGITS", "generation_logits"},
  };
  return links;
}

}  // namespace inflight::contract
