// SPDX-License-Identifier: Apache-2.0
#include "contract/llm_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "contract/tensor_values.h"
#include "contract/word_list.h"

namespace inflight::contract {
namespace {

using parameters::Parameter;
using parameters::Type;

Status NotSupported(const Tensor& tensor, std::string_view what = {}) {
  std::string message = tensor.name;
  if (!what.empty()) message += " " + std::string(what);
  return Unimplemented(message + " is not supported; leave it out").WithField(tensor.name);
}

Status OutOfRange(const Tensor& tensor, int32_t value, std::string_view bound) {
  return InvalidArgument(tensor.name, fmt::format("got {}, must be {}", value, bound));
}

// --- what is not supported: the values that ask for nothing pass ---

Status RefuseUnlessEmpty(const Tensor& tensor, const LlmInput&, LlmParse&) {
  return tensor.data.empty() ? Status::Ok() : NotSupported(tensor);
}

Status RefuseIfTrue(const Tensor& tensor, const LlmInput&, LlmParse&) {
  ASSIGN_OR_RETURN(const bool value, ReadBool(tensor));
  return value ? NotSupported(tensor) : Status::Ok();
}

Status RefuseUnlessZero(const Tensor& tensor, const LlmInput&, LlmParse&) {
  ASSIGN_OR_RETURN(const int32_t value, ReadInt32(tensor));
  return value == 0 ? Status::Ok() : NotSupported(tensor, std::to_string(value));
}

// Has a meaning only in encoder-decoder models, so that any readable value is true to what a
// decoder does.
Status NoEffectInt32(const Tensor& tensor, const LlmInput&, LlmParse&) {
  return ReadInt32(tensor).status();
}
Status NoEffectBool(const Tensor& tensor, const LlmInput&, LlmParse&) {
  return ReadBool(tensor).status();
}
Status NoEffectIds(const Tensor& tensor, const LlmInput&, LlmParse&) {
  return ReadInt32s(tensor).status();
}

// --- inputs that are no plain value ---

Status InputIds(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  if (tensor.shape.size() > 1 && tensor.shape.front() != 1) {
    return InvalidArgument("Expected batch dimension to be 1 for each request for input tensor " +
                           tensor.name + ", got " + std::to_string(tensor.shape.front()));
  }
  ASSIGN_OR_RETURN(parse.out.request.input_ids, ReadInt32s(tensor));
  if (parse.out.request.input_ids.empty()) {
    return InvalidArgument(tensor.name + ": got no tokens, at least 1 is needed");
  }
  return Status::Ok();
}

Status InputLengths(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(parse.input_length, ReadInt32(tensor));
  parse.input_lengths_name = tensor.name;
  if (parse.input_length < 1) {
    return OutOfRange(tensor, parse.input_length, "at least 1");
  }
  return Status::Ok();
}

Status RequestOutputLen(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(parse.out.request.max_tokens, ReadInt32(tensor));
  if (parse.out.request.max_tokens < 1) {
    return OutOfRange(tensor, parse.out.request.max_tokens, "at least 1");
  }
  return Status::Ok();
}

Status EndId(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(const int32_t id, ReadInt32(tensor));
  if (id < -1 && !parse.defaults.takes_any_end_id)
    return OutOfRange(tensor, id, "a token id, or -1 for none");
  auto& end_ids = parse.out.request.end_ids;
  end_ids.clear();
  if (id >= 0) end_ids.push_back(id);
  const auto& alike = parse.defaults.end_ids;
  if (std::find(alike.begin(), alike.end(), id) != alike.end()) end_ids = alike;
  return Status::Ok();
}

Status StopWords(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(const auto list, ReadInt32s(tensor));
  ASSIGN_OR_RETURN(parse.out.request.stop_words, DecodeWordList(list));
  return Status::Ok();
}

Status BadWords(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(const auto list, ReadInt32s(tensor));
  ASSIGN_OR_RETURN(parse.out.request.bad_words, DecodeWordList(list));
  return Status::Ok();
}

Status EmbeddingBias(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(auto bias, ReadFloats(tensor));
  if (bias.empty()) return Status::Ok();
  parse.out.request.embedding_bias = std::make_shared<std::vector<float>>(std::move(bias));
  return Status::Ok();
}

// Tokens for the model to judge; an empty tensor asks for nothing.
Status DraftIds(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(parse.out.request.draft_ids, ReadInt32s(tensor));
  return Status::Ok();
}

Status DraftLogits(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  if (tensor.data.empty()) return Status::Ok();
  MemoryCharge charge(parse.memory);
  const auto num_bytes = static_cast<size_t>(tensor.num_elements()) * sizeof(float);
  if (const Status charged = charge.Resize(num_bytes); !charged.ok())
    return charged.WithPrefix(tensor.name);
  ASSIGN_OR_RETURN(auto logits, ReadFloats(tensor));
  parse.out.request.draft_logits = Charged(std::move(logits), std::move(charge));
  return Status::Ok();
}

// 0 is as not sent.
Status DraftAcceptanceThreshold(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(const float value, ReadFloat(tensor));
  if (value == 0) return Status::Ok();
  if (!(value > 0 && value <= 1))
    return InvalidArgument(tensor.name,
                           fmt::format("got {}, must be in (0, 1], or 0 for none", value));
  parse.out.request.draft_acceptance_threshold = value;
  return Status::Ok();
}

// Read when the number of rows that count is known.
Status PromptEmbeddingTable(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  if (!tensor.data.empty()) parse.prompt_table = &tensor;
  return Status::Ok();
}

Status PromptVocabSize(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(parse.prompt_vocab_size, ReadInt32(tensor));
  if (parse.prompt_vocab_size < 0)
    return OutOfRange(tensor, parse.prompt_vocab_size, "the number of the table's rows");
  return Status::Ok();
}

Status PromptTableExtraIds(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(parse.out.prompt_tuning.extra_ids, ReadUint64s(tensor));
  return Status::Ok();
}

Status PadId(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(parse.out.pad_id, ReadInt32(tensor));
  return Status::Ok();
}

Status ReturnPerfMetrics(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(const bool value, ReadBool(tensor));
  parse.out.facts.perf_metrics = value;
  parse.out.facts.kv_cache_reuse_stats |= value;
  return Status::Ok();
}

Status Streaming(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(parse.out.request.streaming, ReadBool(tensor));
  if (parse.out.request.streaming && !parse.defaults.decoupled) {
    return InvalidArgument(
        "Streaming is only supported if model is deployed using decoupled mode (" + tensor.name +
        " is true; set model_transaction_policy.decoupled)");
  }
  return Status::Ok();
}

Status LoraTaskId(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(parse.lora_task_id, ReadUint64(tensor));
  return Status::Ok();
}

Status LoraWeights(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  if (!tensor.data.empty()) parse.lora_weights = &tensor;
  return Status::Ok();
}

Status LoraConfig(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  if (!tensor.data.empty()) parse.lora_config = &tensor;
  return Status::Ok();
}

Status ExcludeInput(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  ASSIGN_OR_RETURN(parse.out.exclude_input, ReadBool(tensor));
  return Status::Ok();
}

Status ReadFact(const Tensor& tensor, const LlmInput& input, LlmParse& parse) {
  ASSIGN_OR_RETURN(parse.out.facts.*input.fact, ReadBool(tensor));
  return Status::Ok();
}

Status ReadGuideType(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  parse.guide_type = &tensor;
  return Status::Ok();
}

Status ReadGuideText(const Tensor& tensor, const LlmInput&, LlmParse& parse) {
  parse.guide = &tensor;
  return Status::Ok();
}

// --- a row of the table of parameters ---

// BOOL, or INT32 in later releases.
Result<int> ReadSwitch(const Tensor& tensor) {
  if (tensor.datatype != DataType::kBool) return ReadInt32(tensor);
  ASSIGN_OR_RETURN(const bool value, ReadBool(tensor));
  return value ? 1 : 0;
}

Status ReadParameter(const Tensor& tensor, const LlmInput& input, LlmParse& parse) {
  const Parameter& parameter = *input.parameter;
  const auto set = [&](const auto& value) -> Status {
    if (!value.ok()) return value.status();
    return parameters::Set(parameter, tensor.name, *value, parse.out.request);
  };
  switch (parameters::TypeOf(parameter)) {
    case Type::kFloat:
      return set(ReadFloat(tensor));
    case Type::kInteger:
      return set(parameter.is_switch ? ReadSwitch(tensor) : ReadInt32(tensor));
    case Type::kUnsigned64:
      return set(ReadUint64(tensor));
    case Type::kBool:
      return set(ReadBool(tensor));
  }
  return Status::Ok();
}

DataType DeclaredType(const Parameter& parameter) {
  if (parameter.is_switch) return DataType::kBool;
  switch (parameters::TypeOf(parameter)) {
    case Type::kFloat:
      return DataType::kFp32;
    case Type::kInteger:
      return DataType::kInt32;
    case Type::kUnsigned64:
      return DataType::kUint64;
    case Type::kBool:
      return DataType::kBool;
  }
  return DataType::kInvalid;
}

using enum DataType;

constexpr auto kBeforeParameters = std::to_array<LlmInput>({
    {"input_ids", kInt32, Form::kRequiredIds, InputIds},
    {"input_lengths", kInt32, Form::kRequiredScalar, InputLengths},
    {"request_output_len", kInt32, Form::kRequired, RequestOutputLen},
    {"decoder_input_ids", kInt32, Form::kVector, NoEffectIds},
    {"decoder_input_lengths", kInt32, Form::kScalar, NoEffectInt32},
    {"draft_input_ids", kInt32, Form::kVector, DraftIds},
    {"draft_logits", kFp32, Form::kMatrix, DraftLogits},
    {"draft_acceptance_threshold", kFp32, Form::kScalar, DraftAcceptanceThreshold},
    {"end_id", kInt32, Form::kScalar, EndId},
    {"pad_id", kInt32, Form::kScalar, PadId},
    {"stop_words_list", kInt32, Form::kWords, StopWords},
    {"bad_words_list", kInt32, Form::kWords, BadWords},
    {"embedding_bias", kFp32, Form::kVector, EmbeddingBias},
});

constexpr LlmInput Fact(std::string_view name, bool FactsAsked::*fact) {
  return {.name = name,
          .type = kBool,
          .form = Form::kScalar,
          .read = ReadFact,
          .fact = fact,
          .text_place = parameters::kAfterUpstreamOutputs};
}

constexpr LlmInput Text(std::string_view name,
                        Status (*read)(const Tensor&, const LlmInput&, LlmParse&)) {
  return {.name = name,
          .type = kBytes,
          .form = Form::kOne,
          .read = read,
          .text_place = parameters::kAfterUpstreamOutputs};
}

constexpr auto kAfterParameters = std::to_array<LlmInput>({
    Fact("return_num_input_tokens", &FactsAsked::num_input_tokens),
    Fact("return_num_output_tokens", &FactsAsked::num_output_tokens),
    Fact("return_num_cached_tokens", &FactsAsked::num_cached_tokens),
    Fact("return_finish_reason", &FactsAsked::finish_reason),
    {"stop", kBool, Form::kOne, NoEffectBool},  // true was handled before
    {"streaming", kBool, Form::kOne, Streaming},
    {"prompt_embedding_table", kFp16, Form::kMatrix, PromptEmbeddingTable},
    {"prompt_vocab_size", kInt32, Form::kScalar, PromptVocabSize},
    {"lora_task_id", kUint64, Form::kScalar, LoraTaskId},
    {"lora_weights", kFp16, Form::kMatrix, LoraWeights},
    {"lora_config", kInt32, Form::kTriples, LoraConfig},
    Text(kGuideType, ReadGuideType),
    Text(kGuide, ReadGuideText),
    // Of later releases: a model's own configuration decides which of them a client may send.
    {"context_phase_params", kUint8, Form::kUndeclared, RefuseUnlessEmpty},
    {"cross_attention_mask", kBool, Form::kUndeclared, RefuseUnlessEmpty},
    {"encoder_input_features", kFp16, Form::kUndeclared, RefuseUnlessEmpty},
    {"encoder_output_lengths", kInt32, Form::kUndeclared, RefuseUnlessZero},
    {"exclude_input_in_output", kBool, Form::kUndeclared, ExcludeInput},
    {"lookahead_ngram_size", kInt32, Form::kUndeclared, RefuseUnlessZero},
    {"lookahead_verification_set_size", kInt32, Form::kUndeclared, RefuseUnlessZero},
    {"lookahead_window_size", kInt32, Form::kUndeclared, RefuseUnlessZero},
    {"mrope_position_deltas", kInt64, Form::kUndeclared, RefuseUnlessEmpty},
    {"mrope_rotary_cos_sin", kFp32, Form::kUndeclared, RefuseUnlessEmpty},
    {"prompt_table_extra_ids", kUint64, Form::kUndeclared, PromptTableExtraIds},
    {"retention_decode_duration_ms", kInt32, Form::kUndeclared, RefuseUnlessEmpty},
    {"retention_decode_priority", kInt32, Form::kUndeclared, RefuseUnlessEmpty},
    {"retention_token_range_durations_ms", kInt32, Form::kUndeclared, RefuseUnlessEmpty},
    {"retention_token_range_ends", kInt32, Form::kUndeclared, RefuseUnlessEmpty},
    {"retention_token_range_priorities", kInt32, Form::kUndeclared, RefuseUnlessEmpty},
    {"retention_token_range_starts", kInt32, Form::kUndeclared, RefuseUnlessEmpty},
    {.name = "return_kv_cache_reuse_stats",
     .type = kBool,
     .read = ReadFact,
     .fact = &FactsAsked::kv_cache_reuse_stats},
    {"return_perf_metrics", kBool, Form::kUndeclared, ReturnPerfMetrics},
    {"skip_cross_attn_blocks", kBool, Form::kUndeclared, RefuseIfTrue},
});

std::vector<LlmInput> MakeTable() {
  std::vector<LlmInput> table(kBeforeParameters.begin(), kBeforeParameters.end());
  std::vector<LlmInput> other_names;
  for (const Parameter& parameter : parameters::All()) {
    LlmInput input = {.name = parameter.llm_name,
                      .type = DeclaredType(parameter),
                      .form = parameter.is_in_generated_models ? Form::kScalar : Form::kUndeclared,
                      .read = ReadParameter,
                      .parameter = &parameter,
                      .text_place = parameter.text_place};
    table.push_back(input);
    if (parameter.other_llm_name.empty()) continue;
    input.name = parameter.other_llm_name;
    input.form = Form::kUndeclared;
    other_names.push_back(input);
  }
  table.insert(table.end(), kAfterParameters.begin(), kAfterParameters.end());
  table.insert(table.end(), other_names.begin(), other_names.end());
  return table;
}

using Index = std::unordered_map<std::string_view, const LlmInput*>;

Index MakeIndex() {
  Index index;
  for (const LlmInput& input : LlmInputTable()) index.emplace(input.name, &input);
  return index;
}

}  // namespace

std::span<const LlmInput> LlmInputTable() {
  static const std::vector<LlmInput> table = MakeTable();
  return table;
}

const LlmInput* FindLlmInput(std::string_view name) {
  static const Index index = MakeIndex();
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

bool IsRefusedWhereUsed(const LlmInput& input) {
  return input.read == RefuseUnlessEmpty || input.read == RefuseIfTrue ||
         input.read == RefuseUnlessZero;
}

bool IsOurs(std::string_view name) {
  const LlmInput* input = FindLlmInput(name);
  return input != nullptr && input->parameter != nullptr &&
         input->parameter->llm_release == parameters::kOurs;
}

}  // namespace inflight::contract
