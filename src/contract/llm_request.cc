// SPDX-License-Identifier: Apache-2.0
#include "contract/llm_request.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "base/log.h"
#include "contract/tensor_values.h"
#include "contract/word_list.h"
#include "executor/validation.h"

namespace inflight::contract {
namespace {

// What a tensor's handler works on.
struct Parse {
  LlmRequest& out;
  const LlmRequestDefaults& defaults;
  int input_length = -1;             // of input_lengths, -1 = not given
  std::string input_lengths_name{};  // as the client calls it
  std::string num_return_sequences_name{};
};

using Handler = Status (*)(const Tensor&, Parse&);

Status NotSupported(const Tensor& tensor, std::string_view what = {}) {
  std::string message = tensor.name;
  if (!what.empty()) message += " " + std::string(what);
  return Unimplemented(message + " is not supported yet");
}

Status OutOfRange(const Tensor& tensor, const std::string& value, std::string_view bound) {
  return InvalidArgument(tensor.name + ": got " + value + ", must be " + std::string(bound));
}

std::string ToText(float value) {
  std::string text = std::to_string(value);
  if (text.find('.') == std::string::npos) return text;  // nan, inf
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

// --- rules for what is not built: the values that ask for nothing pass ---

Status RefuseUnlessEmpty(const Tensor& tensor, Parse&) {
  return tensor.data.empty() ? Status::Ok() : NotSupported(tensor);
}

Status RefuseIfTrue(const Tensor& tensor, Parse&) {
  ASSIGN_OR_RETURN(const bool value, ReadBool(tensor));
  return value ? NotSupported(tensor) : Status::Ok();
}

Status RefuseUnlessZero(const Tensor& tensor, Parse&) {
  ASSIGN_OR_RETURN(const int32_t value, ReadInt32(tensor));
  return value == 0 ? Status::Ok() : NotSupported(tensor, std::to_string(value));
}

// Every byte zero: an id of 0 for each token means "ordinary text".
Status RefuseUnlessAllZero(const Tensor& tensor, Parse&) {
  const bool all_zero = std::all_of(tensor.data.begin(), tensor.data.end(),
                                    [](std::byte b) { return b == std::byte{0}; });
  return all_zero ? Status::Ok() : NotSupported(tensor);
}

template <int kNeutral>
Status RefuseUnlessFloat(const Tensor& tensor, Parse&) {
  ASSIGN_OR_RETURN(const float value, ReadFloat(tensor));
  return value == static_cast<float>(kNeutral) ? Status::Ok() : NotSupported(tensor, ToText(value));
}

// Has a meaning only in encoder-decoder models, so that any readable value is true to what a
// decoder does.
Status NoEffectInt32(const Tensor& tensor, Parse&) { return ReadInt32(tensor).status(); }
Status NoEffectBool(const Tensor& tensor, Parse&) { return ReadBool(tensor).status(); }
Status NoEffectIds(const Tensor& tensor, Parse&) { return ReadInt32s(tensor).status(); }

// --- what is built ---

Status InputIds(const Tensor& tensor, Parse& parse) {
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

Status InputLengths(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(parse.input_length, ReadInt32(tensor));
  parse.input_lengths_name = tensor.name;
  if (parse.input_length < 1) {
    return OutOfRange(tensor, std::to_string(parse.input_length), "at least 1");
  }
  return Status::Ok();
}

Status RequestOutputLen(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(parse.out.request.max_tokens, ReadInt32(tensor));
  if (parse.out.request.max_tokens < 1) {
    return OutOfRange(tensor, std::to_string(parse.out.request.max_tokens), "at least 1");
  }
  return Status::Ok();
}

Status EndId(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const int32_t id, ReadInt32(tensor));
  if (id < -1) return OutOfRange(tensor, std::to_string(id), "a token id, or -1 for none");
  parse.out.request.end_ids.clear();
  if (id >= 0) parse.out.request.end_ids.push_back(id);
  return Status::Ok();
}

Status StopWords(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const auto list, ReadInt32s(tensor));
  ASSIGN_OR_RETURN(parse.out.request.stop_words, DecodeWordList(list));
  return Status::Ok();
}

Status BadWords(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const auto list, ReadInt32s(tensor));
  ASSIGN_OR_RETURN(parse.out.request.bad_words, DecodeWordList(list));
  return Status::Ok();
}

Status EmbeddingBias(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(auto bias, ReadFloats(tensor));
  if (bias.empty()) return Status::Ok();
  parse.out.request.embedding_bias = std::make_shared<std::vector<float>>(std::move(bias));
  return Status::Ok();
}

Status NumTopLogProbs(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const int32_t value, ReadInt32(tensor));
  if (value < 0) return OutOfRange(tensor, std::to_string(value), "at least 0");
  parse.out.request.output.num_top_log_probs = value;
  return Status::Ok();
}

template <int SamplingParams::*kField>
Status Count(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const int32_t value, ReadInt32(tensor));
  if (value < 0) return OutOfRange(tensor, std::to_string(value), "at least 0");
  parse.out.request.sampling.*kField = value;
  return Status::Ok();
}

Status Temperature(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const float value, ReadFloat(tensor));
  if (!(value >= 0) || std::isinf(value)) {
    return OutOfRange(tensor, ToText(value), "a finite number of at least 0");
  }
  parse.out.request.sampling.temperature = value;
  return Status::Ok();
}

Status TopK(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const int32_t value, ReadInt32(tensor));
  if (value < 0) return OutOfRange(tensor, std::to_string(value), "at least 0");
  parse.out.request.sampling.top_k = value;
  return Status::Ok();
}

Status TopP(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const float value, ReadFloat(tensor));
  if (!(value <= 1)) return OutOfRange(tensor, ToText(value), "at most 1");
  if (value > 0) parse.out.request.sampling.top_p = value;  // 0 and below: as if not sent
  return Status::Ok();
}

Status MinP(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const float value, ReadFloat(tensor));
  if (!(value >= 0 && value <= 1)) return OutOfRange(tensor, ToText(value), "in [0, 1]");
  if (value > 0) parse.out.request.sampling.min_p = value;  // 0: as if not sent
  return Status::Ok();
}

Status TopPDecay(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const float value, ReadFloat(tensor));
  if (!(value > 0 && value <= 1)) return OutOfRange(tensor, ToText(value), "in (0, 1]");
  parse.out.request.sampling.top_p_decay = value;
  return Status::Ok();
}

Status TopPMin(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const float value, ReadFloat(tensor));
  if (!(value >= 0 && value <= 1)) return OutOfRange(tensor, ToText(value), "in [0, 1]");
  if (value > 0) parse.out.request.sampling.top_p_min = value;  // 0: as if not sent
  return Status::Ok();
}

Status TopPResetId(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const int32_t id, ReadInt32(tensor));
  if (id < -1) return OutOfRange(tensor, std::to_string(id), "a token id, or -1 for none");
  parse.out.request.sampling.top_p_reset_id = id;
  return Status::Ok();
}

Status RepetitionPenalty(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const float value, ReadFloat(tensor));
  if (!(value > 0) || std::isinf(value)) {
    return OutOfRange(tensor, ToText(value), "a finite number above 0");
  }
  parse.out.request.sampling.repetition_penalty = value;
  return Status::Ok();
}

template <std::optional<float> SamplingParams::*kField>
Status AnyFinite(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const float value, ReadFloat(tensor));
  if (!std::isfinite(value)) return OutOfRange(tensor, ToText(value), "finite");
  parse.out.request.sampling.*kField = value;
  return Status::Ok();
}

Status BeamWidth(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const int32_t value, ReadInt32(tensor));
  if (value < 1) return OutOfRange(tensor, std::to_string(value), "at least 1");
  const int limit = parse.defaults.max_beam_width;
  if (limit > 0 && value > limit) {
    return InvalidArgument("Requested beam width " + std::to_string(value) +
                           " is larger than configured max beam width " + std::to_string(limit) +
                           " (" + tensor.name + ")");
  }
  parse.out.request.sampling.beam_width = value;
  return Status::Ok();
}

Status LengthPenalty(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const float value, ReadFloat(tensor));
  if (!std::isfinite(value)) return OutOfRange(tensor, ToText(value), "finite");
  parse.out.request.sampling.length_penalty = value;
  return Status::Ok();
}

// BOOL, or INT32 in later releases: anything but 0 and 1 means "never".
Status EarlyStopping(const Tensor& tensor, Parse& parse) {
  int& early_stopping = parse.out.request.sampling.early_stopping;
  if (tensor.datatype == DataType::kBool) {
    ASSIGN_OR_RETURN(const bool value, ReadBool(tensor));
    early_stopping = value ? 1 : 0;
    return Status::Ok();
  }
  ASSIGN_OR_RETURN(early_stopping, ReadInt32(tensor));
  return Status::Ok();
}

Status DiversityRate(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const float value, ReadFloat(tensor));
  if (!(value >= 0) || std::isinf(value)) {
    return OutOfRange(tensor, ToText(value), "a finite number of at least 0");
  }
  parse.out.request.sampling.beam_search_diversity_rate = value;
  return Status::Ok();
}

Status PadId(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(parse.out.pad_id, ReadInt32(tensor));
  return Status::Ok();
}

Status NumReturnSequences(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const int32_t value, ReadInt32(tensor));
  if (value < 1 || value > executor::kMaxReturnSequences) {
    return OutOfRange(tensor, std::to_string(value),
                      "in [1, " + std::to_string(executor::kMaxReturnSequences) + "]");
  }
  parse.out.request.sampling.num_return_sequences = value;
  parse.num_return_sequences_name = tensor.name;
  return Status::Ok();
}

Status RandomSeed(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(parse.out.request.sampling.seed, ReadUint64(tensor));
  return Status::Ok();
}

template <bool FactsAsked::*kFact>
Status ReturnFact(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(parse.out.facts.*kFact, ReadBool(tensor));
  return Status::Ok();
}

Status ReturnPerfMetrics(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(const bool value, ReadBool(tensor));
  parse.out.facts.perf_metrics = value;
  parse.out.facts.kv_cache_reuse_stats |= value;
  return Status::Ok();
}

template <bool OutputOptions::*kLogits>
Status ReturnLogits(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(parse.out.request.output.*kLogits, ReadBool(tensor));
  return Status::Ok();
}

Status ReturnLogProbs(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(parse.out.request.output.return_log_probs, ReadBool(tensor));
  return Status::Ok();
}

Status Streaming(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(parse.out.request.streaming, ReadBool(tensor));
  if (parse.out.request.streaming && !parse.defaults.decoupled) {
    return InvalidArgument(
        "Streaming is only supported if model is deployed using decoupled mode (" + tensor.name +
        " is true; set model_transaction_policy.decoupled)");
  }
  return Status::Ok();
}

Status ExcludeInput(const Tensor& tensor, Parse& parse) {
  ASSIGN_OR_RETURN(parse.out.exclude_input, ReadBool(tensor));
  return Status::Ok();
}

// Each sequence is answered by itself, beams together.
Status CheckSequences(const Parse& parse) {
  const SamplingParams& sampling = parse.out.request.sampling;
  if (sampling.num_return_sequences.value_or(1) == 1 || sampling.beam_width > 1)
    return Status::Ok();
  if (parse.defaults.decoupled) return Status::Ok();
  return InvalidArgument(parse.num_return_sequences_name + ": got " +
                         std::to_string(*sampling.num_return_sequences) +
                         ", more than 1 needs a model in decoupled mode (set "
                         "model_transaction_policy.decoupled)");
}

struct Entry {
  std::string_view name;
  Handler handler;
};

// Names of all releases; a model's own configuration decides which of them a client may send.
constexpr auto kEntries = std::to_array<Entry>({
    {"beam_search_diversity_rate", DiversityRate},
    {"beam_width", BeamWidth},
    {"context_phase_params", RefuseUnlessEmpty},
    {"cross_attention_mask", RefuseUnlessEmpty},
    {"decoder_input_ids", NoEffectIds},
    {"decoder_input_lengths", NoEffectInt32},
    {"draft_acceptance_threshold", RefuseUnlessFloat<0>},
    {"draft_input_ids", RefuseUnlessEmpty},
    {"draft_logits", RefuseUnlessEmpty},
    {"early_stopping", EarlyStopping},
    {"embedding_bias", EmbeddingBias},
    {"encoder_input_features", RefuseUnlessEmpty},
    {"encoder_output_lengths", RefuseUnlessZero},
    {"end_id", EndId},
    {"exclude_input_in_output", ExcludeInput},
    {"frequency_penalty", AnyFinite<&SamplingParams::frequency_penalty>},
    {"guided_decoding_guide", RefuseUnlessEmpty},
    {"guided_decoding_guide_type", RefuseUnlessEmpty},
    {"input_ids", InputIds},
    {"input_lengths", InputLengths},
    {"len_penalty", LengthPenalty},
    {"lookahead_ngram_size", RefuseUnlessZero},
    {"lookahead_verification_set_size", RefuseUnlessZero},
    {"lookahead_window_size", RefuseUnlessZero},
    {"lora_config", RefuseUnlessEmpty},
    {"lora_task_id", RefuseUnlessEmpty},
    {"lora_weights", RefuseUnlessEmpty},
    {"min_length", Count<&SamplingParams::min_tokens>},
    {"min_p", MinP},
    {"min_tokens", Count<&SamplingParams::min_tokens>},
    {"mrope_position_deltas", RefuseUnlessEmpty},
    {"mrope_rotary_cos_sin", RefuseUnlessEmpty},
    {"no_repeat_ngram_size", Count<&SamplingParams::no_repeat_ngram_size>},
    {"noRepeatNgramSize", Count<&SamplingParams::no_repeat_ngram_size>},
    {"num_return_sequences", NumReturnSequences},
    {"num_top_log_probs", NumTopLogProbs},
    {"pad_id", PadId},
    {"presence_penalty", AnyFinite<&SamplingParams::presence_penalty>},
    {"prompt_embedding_table", RefuseUnlessEmpty},
    {"prompt_ignore_length", Count<&SamplingParams::prompt_ignore_length>},
    {"prompt_table_extra_ids", RefuseUnlessAllZero},
    {"prompt_vocab_size", RefuseUnlessZero},
    {"random_seed", RandomSeed},
    {"repetition_penalty", RepetitionPenalty},
    {"request_output_len", RequestOutputLen},
    {"retention_decode_duration_ms", RefuseUnlessEmpty},
    {"retention_decode_priority", RefuseUnlessEmpty},
    {"retention_token_range_durations_ms", RefuseUnlessEmpty},
    {"retention_token_range_ends", RefuseUnlessEmpty},
    {"retention_token_range_priorities", RefuseUnlessEmpty},
    {"retention_token_range_starts", RefuseUnlessEmpty},
    {"return_context_logits", ReturnLogits<&OutputOptions::return_context_logits>},
    {"return_finish_reason", ReturnFact<&FactsAsked::finish_reason>},
    {"return_generation_logits", ReturnLogits<&OutputOptions::return_generation_logits>},
    {"return_kv_cache_reuse_stats", ReturnFact<&FactsAsked::kv_cache_reuse_stats>},
    {"return_log_probs", ReturnLogProbs},
    {"return_num_cached_tokens", ReturnFact<&FactsAsked::num_cached_tokens>},
    {"return_num_input_tokens", ReturnFact<&FactsAsked::num_input_tokens>},
    {"return_num_output_tokens", ReturnFact<&FactsAsked::num_output_tokens>},
    {"return_perf_metrics", ReturnPerfMetrics},
    {"runtime_top_k", TopK},
    {"runtime_top_p", TopP},
    {"runtime_top_p_decay", TopPDecay},
    {"runtime_top_p_min", TopPMin},
    {"runtime_top_p_reset_ids", TopPResetId},
    {"seed", RandomSeed},
    {"skip_cross_attn_blocks", RefuseIfTrue},
    {"stop", NoEffectBool},  // true was handled before
    {"stop_words_list", StopWords},
    {"bad_words_list", BadWords},
    {"streaming", Streaming},
    {"temperature", Temperature},
});

Handler FindHandler(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.handler;
  }
  return nullptr;
}

}  // namespace

Result<LlmRequest> ParseLlmRequest(std::span<const NamedInput> inputs,
                                   const LlmRequestDefaults& defaults) {
  LlmRequest out;
  out.exclude_input = defaults.exclude_input_in_output;
  out.request.output.normalize_log_probs = defaults.normalize_log_probs;
  for (const NamedInput& input : inputs) {
    if (input.name != "stop") continue;
    ASSIGN_OR_RETURN(out.is_stop, ReadBool(*input.tensor));
    if (out.is_stop) return out;
  }
  Parse parse{.out = out, .defaults = defaults};
  for (const NamedInput& input : inputs) {
    const Handler handler = FindHandler(input.name);
    if (handler == nullptr) return NotSupported(*input.tensor);
    RETURN_IF_ERROR(handler(*input.tensor, parse));
  }
  RETURN_IF_ERROR(CheckSequences(parse));
  RETURN_IF_ERROR(CheckDecodingMode(defaults.decoding_mode, out.request.sampling,
                                    [inputs](std::string_view name) {
                                      for (const NamedInput& input : inputs) {
                                        if (input.name == name) return input.tensor->name;
                                      }
                                      return std::string(name);
                                    }));
  auto& ids = out.request.input_ids;
  if (parse.input_length >= 0 && !ids.empty()) {
    if (static_cast<size_t>(parse.input_length) > ids.size()) {
      return InvalidArgument(parse.input_lengths_name + ": got " +
                             std::to_string(parse.input_length) + ", must be at most " +
                             std::to_string(ids.size()) + ", the number of input ids");
    }
    ids.resize(static_cast<size_t>(parse.input_length));  // the rest is padding
  }
  return out;
}

Status FitToEngine(Request& request, const ExecutorLimits& limits) {
  if (request.input_ids.empty()) return InvalidArgument("input_ids is not present in the request");
  if (request.max_tokens == 0) {
    return InvalidArgument("request_output_len is not present in the request");
  }
  const auto prompt_len = static_cast<int64_t>(request.input_ids.size());
  const int64_t max_prompt = std::min(limits.max_input_len, limits.max_seq_len - 1);
  if (prompt_len > max_prompt) {
    return InvalidArgument("Prompt length (" + std::to_string(prompt_len) +
                           ") exceeds maximum input length (" + std::to_string(max_prompt) + ").");
  }
  for (const TokenId id : request.input_ids) {
    if (id < 0 || id >= limits.vocab_size) {
      return InvalidArgument("input_ids: got token id " + std::to_string(id) + ", must be in [0, " +
                             std::to_string(limits.vocab_size) + ")");
    }
  }
  for (const TokenId id : request.end_ids) {
    if (id >= limits.vocab_size) {
      return InvalidArgument("EndId (" + std::to_string(id) +
                             ") is not within vocabulary range [0, " +
                             std::to_string(limits.vocab_size) + ").");
    }
  }
  if (const int64_t room = limits.max_seq_len - prompt_len; request.max_tokens > room) {
    logging::Verbose("max_tokens shortened to the engine's max_seq_len",
                     {{"asked", request.max_tokens}, {"given", room}});
    request.max_tokens = static_cast<int>(room);
  }
  return Status::Ok();
}

}  // namespace inflight::contract
