// SPDX-License-Identifier: Apache-2.0
#include "contract/model_tables.h"

namespace inflight::contract {
namespace {

using Specs = std::vector<TensorSpec>;
using Links = std::vector<TensorLink>;
using enum DataType;

constexpr bool kOptional = true;

TensorSpec Scalar(std::string_view name, DataType type, bool optional = kOptional) {
  return {name, type, {1}, optional, /*is_scalar=*/true, /*is_ragged=*/false};
}

TensorSpec Ragged(std::string_view name, DataType type, std::vector<int64_t> dims,
                  bool optional = kOptional) {
  return {name, type, std::move(dims), optional, /*is_scalar=*/false, /*is_ragged=*/true};
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
  static const Specs specs = {
      Ragged("input_ids", kInt32, {-1}, !kOptional),
      Scalar("input_lengths", kInt32, !kOptional),
      {"request_output_len", kInt32, {1}},
      Ragged("decoder_input_ids", kInt32, {-1}),
      Scalar("decoder_input_lengths", kInt32),
      Ragged("draft_input_ids", kInt32, {-1}),
      Ragged("draft_logits", kFp32, {-1, -1}),
      Scalar("draft_acceptance_threshold", kFp32),
      Scalar("end_id", kInt32),
      Scalar("pad_id", kInt32),
      Ragged("stop_words_list", kInt32, {2, -1}),
      Ragged("bad_words_list", kInt32, {2, -1}),
      Ragged("embedding_bias", kFp32, {-1}),
      Scalar("beam_width", kInt32),
      Scalar("temperature", kFp32),
      Scalar("runtime_top_k", kInt32),
      Scalar("runtime_top_p", kFp32),
      Scalar("runtime_top_p_min", kFp32),
      Scalar("runtime_top_p_decay", kFp32),
      Scalar("runtime_top_p_reset_ids", kInt32),
      Scalar("min_p", kFp32),
      Scalar("len_penalty", kFp32),
      Scalar("early_stopping", kBool),
      Scalar("repetition_penalty", kFp32),
      Scalar("min_length", kInt32),
      Scalar("beam_search_diversity_rate", kFp32),
      Scalar("presence_penalty", kFp32),
      Scalar("frequency_penalty", kFp32),
      Scalar("prompt_ignore_length", kInt32),
      Scalar("no_repeat_ngram_size", kInt32),
      Scalar("random_seed", kUint64),
      Scalar("return_log_probs", kBool),
      Scalar("return_context_logits", kBool),
      Scalar("return_generation_logits", kBool),
      Scalar("num_top_log_probs", kInt32),
      Scalar("return_num_input_tokens", kBool),
      Scalar("return_num_output_tokens", kBool),
      Scalar("return_num_cached_tokens", kBool),
      Scalar("return_finish_reason", kBool),
      {"stop", kBool, {1}, kOptional},
      {"streaming", kBool, {1}, kOptional},
      Ragged("prompt_embedding_table", kFp16, {-1, -1}),
      Scalar("prompt_vocab_size", kInt32),
      Scalar("lora_task_id", kUint64),
      Ragged("lora_weights", kFp16, {-1, -1}),
      Ragged("lora_config", kInt32, {-1, 3}),
  };
  return specs;
}

std::span<const TensorSpec> LlmOutputs() {
  static const Specs specs = {
      {"output_ids", kInt32, {-1, -1}},       {"sequence_length", kInt32, {-1}},
      {"context_logits", kFp32, {-1, -1}},    {"generation_logits", kFp32, {-1, -1, -1}},
      {"output_log_probs", kFp32, {-1, -1}},  {"cum_log_probs", kFp32, {-1}},
      {"batch_index", kInt32, {1}},           {"top_log_prob_ids", kInt32, {-1, -1, -1}},
      {"top_log_probs", kFp32, {-1, -1, -1}}, {"num_input_tokens", kInt32, {1}},
      {"num_output_tokens", kInt32, {1}},     {"num_cached_tokens", kInt32, {1}},
      {"finish_reason", kBytes, {-1}},
  };
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
  static const Specs specs = {
      {"text_input", kBytes, {-1}},
      {"decoder_text_input", kBytes, {-1}, kOptional},
      {"max_tokens", kInt32, {-1}},
      {"bad_words", kBytes, {-1}, kOptional},
      {"stop_words", kBytes, {-1}, kOptional},
      {"end_id", kInt32, {1}, kOptional},
      {"pad_id", kInt32, {1}, kOptional},
      {"top_k", kInt32, {1}, kOptional},
      {"top_p", kFp32, {1}, kOptional},
      {"temperature", kFp32, {1}, kOptional},
      {"length_penalty", kFp32, {1}, kOptional},
      {"repetition_penalty", kFp32, {1}, kOptional},
      {"min_length", kInt32, {1}, kOptional},
      {"presence_penalty", kFp32, {1}, kOptional},
      {"frequency_penalty", kFp32, {1}, kOptional},
      {"min_p", kFp32, {1}, kOptional},
      {"top_p_min", kFp32, {1}, kOptional},
      {"top_p_decay", kFp32, {1}, kOptional},
      {"top_p_reset_ids", kInt32, {1}, kOptional},
      {"early_stopping", kBool, {1}, kOptional},
      {"beam_search_diversity_rate", kFp32, {1}, kOptional},
      {"prompt_ignore_length", kInt32, {1}, kOptional},
      {"no_repeat_ngram_size", kInt32, {1}, kOptional},
      {"random_seed", kUint64, {1}, kOptional},
      {"return_log_probs", kBool, {1}, kOptional},
      {"return_context_logits", kBool, {1}, kOptional},
      {"return_generation_logits", kBool, {1}, kOptional},
      {"num_top_log_probs", kInt32, {1}, kOptional},
      {"return_num_input_tokens", kBool, {1}, kOptional},
      {"return_num_output_tokens", kBool, {1}, kOptional},
      {"return_num_cached_tokens", kBool, {1}, kOptional},
      {"return_finish_reason", kBool, {1}, kOptional},
      {"beam_width", kInt32, {1}, kOptional},
      {"stream", kBool, {1}, kOptional},
      {"prompt_embedding_table", kFp16, {-1, -1}, kOptional},
      {"prompt_vocab_size", kInt32, {1}, kOptional},
      {"embedding_bias_words", kBytes, {-1}, kOptional},
      {"embedding_bias_weights", kFp32, {-1}, kOptional},
  };
  return specs;
}

std::span<const TensorSpec> EnsembleOutputs() {
  static const Specs specs = {
      {"text_output", kBytes, {-1}},
      {"cum_log_probs", kFp32, {-1}},
      {"output_log_probs", kFp32, {-1, -1}},
      {"context_logits", kFp32, {-1, -1}},
      {"generation_logits", kFp32, {-1, -1, -1}},
      {"batch_index", kInt32, {1}},
      {"top_log_prob_ids", kInt32, {-1, -1, -1}},
      {"top_log_probs", kFp32, {-1, -1, -1}},
      {"num_input_tokens", kInt32, {1}},
      {"num_output_tokens", kInt32, {1}},
      {"num_cached_tokens", kInt32, {1}},
      {"finish_reason", kBytes, {-1}},
  };
  return specs;
}

std::span<const TensorLink> PreprocessingStepInputs() {
  static const Links links = {
      {"QUERY", "text_input"},
      {"DECODER_QUERY", "decoder_text_input"},
      {"REQUEST_OUTPUT_LEN", "max_tokens"},
      {"BAD_WORDS_DICT", "bad_words"},
      {"STOP_WORDS_DICT", "stop_words"},
      {"EMBEDDING_BIAS_WORDS", "embedding_bias_words"},
      {"EMBEDDING_BIAS_WEIGHTS", "embedding_bias_weights"},
      {"END_ID", "end_id"},
      {"PAD_ID", "pad_id"},
  };
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
  static const Links links = {
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
      {"runtime_top_k", "top_k"},
      {"runtime_top_p", "top_p"},
      {"temperature", "temperature"},
      {"len_penalty", "length_penalty"},
      {"repetition_penalty", "repetition_penalty"},
      {"min_length", "min_length"},
      {"presence_penalty", "presence_penalty"},
      {"frequency_penalty", "frequency_penalty"},
      {"min_p", "min_p"},
      {"runtime_top_p_min", "top_p_min"},
      {"runtime_top_p_decay", "top_p_decay"},
      {"runtime_top_p_reset_ids", "top_p_reset_ids"},
      {"early_stopping", "early_stopping"},
      {"beam_search_diversity_rate", "beam_search_diversity_rate"},
      {"prompt_ignore_length", "prompt_ignore_length"},
      {"no_repeat_ngram_size", "no_repeat_ngram_size"},
      {"random_seed", "random_seed"},
      {"return_log_probs", "return_log_probs"},
      {"return_context_logits", "return_context_logits"},
      {"return_generation_logits", "return_generation_logits"},
      {"num_top_log_probs", "num_top_log_probs"},
      {"return_num_input_tokens", "return_num_input_tokens"},
      {"return_num_output_tokens", "return_num_output_tokens"},
      {"return_num_cached_tokens", "return_num_cached_tokens"},
      {"return_finish_reason", "return_finish_reason"},
      {"beam_width", "beam_width"},
      {"streaming", "stream"},
      {"prompt_embedding_table", "prompt_embedding_table"},
      {"prompt_vocab_size", "prompt_vocab_size"},
  };
  return links;
}

std::span<const TensorLink> LlmStepOutputs() {
  static const Links links = {
      {"output_ids", "_TOKENS_BATCH"},
      {"sequence_length", "_SEQUENCE_LENGTH"},
      {"cum_log_probs", "_CUM_LOG_PROBS"},
      {"output_log_probs", "_OUTPUT_LOG_PROBS"},
      {"context_logits", "_CONTEXT_LOGITS"},
      {"generation_logits", "_GENERATION_LOGITS"},
      {"batch_index", "batch_index"},
      {"top_log_prob_ids", "top_log_prob_ids"},
      {"top_log_probs", "top_log_probs"},
      {"num_input_tokens", "num_input_tokens"},
      {"num_output_tokens", "num_output_tokens"},
      {"num_cached_tokens", "num_cached_tokens"},
      {"finish_reason", "finish_reason"},
  };
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
