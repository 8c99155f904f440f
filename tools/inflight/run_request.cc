// SPDX-License-Identifier: Apache-2.0
#include "run_request.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "config/schema.h"

namespace inflight::tool {
namespace {

using nlohmann::json;

struct Line {
  const tokenizer::Tokenizer* tokenizer;
  Request request;
};

using Setter = std::function<Status(Line&, const json&)>;
using Setters = std::map<std::string, Setter, std::less<>>;

Status Wrong(std::string_view key, const json& value, std::string_view needed) {
  return InvalidArgument(fmt::format("{}: got {}, needs {}", key,
                                     value.dump(-1, ' ', false, json::error_handler_t::replace),
                                     needed));
}

template <typename T>
Status SetInteger(std::string_view key, const json& value, T& out) {
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int>::max())) {
    out = static_cast<int>(value.get<uint64_t>());
    return Status::Ok();
  }
  if (!value.is_number_integer() || value.is_number_unsigned() ||
      value.get<int64_t>() < std::numeric_limits<int>::min())
    return Wrong(key, value, "a 32-bit integer");
  out = static_cast<int>(value.get<int64_t>());
  return Status::Ok();
}

template <typename T>
Status SetFloat(std::string_view key, const json& value, T& out) {
  if (!value.is_number()) return Wrong(key, value, "a number");
  out = value.get<float>();
  return Status::Ok();
}

Status SetBool(std::string_view key, const json& value, bool& out) {
  if (!value.is_boolean()) return Wrong(key, value, "true or false");
  out = value.get<bool>();
  return Status::Ok();
}

Status SetIds(std::string_view key, const json& value, std::vector<TokenId>& out) {
  out.clear();
  for (const json& element : value.is_array() ? value : json::array({value})) {
    TokenId id = 0;
    RETURN_IF_ERROR(SetInteger(key, element, id));
    out.push_back(id);
  }
  return Status::Ok();
}

Status SetText(Line& line, const json& value) {
  if (!value.is_string()) return Wrong("text_input", value, "a text");
  if (line.tokenizer == nullptr)
    return FailedPrecondition("text_input: this model directory has no tokenizer; give input_ids");
  ASSIGN_OR_RETURN(
      line.request.input_ids,
      line.tokenizer->Encode(value.get_ref<const std::string&>(), /*add_special_tokens=*/true));
  return Status::Ok();
}

Status SetEndIds(Line& line, const json& value) {
  RETURN_IF_ERROR(SetIds("end_id", value, line.request.end_ids));
  if (line.request.end_ids == std::vector<TokenId>{-1}) line.request.end_ids.clear();
  return Status::Ok();
}

Status SetWords(std::string_view key, const Line& line, const json& value,
                std::vector<std::vector<TokenId>>& out) {
  for (const json& word : value.is_array() ? value : json::array({value})) {
    if (!word.is_string()) return Wrong(key, word, "a text or a list of texts");
    if (word.get_ref<const std::string&>().empty()) continue;
    if (line.tokenizer == nullptr)
      return FailedPrecondition(fmt::format("{}: this model directory has no tokenizer", key));
    ASSIGN_OR_RETURN(auto ids, line.tokenizer->Encode(word.get_ref<const std::string&>(),
                                                      /*add_special_tokens=*/false));
    if (!ids.empty()) out.push_back(std::move(ids));
  }
  return Status::Ok();
}

Setter Words(const char* key, std::vector<std::vector<TokenId>> Request::*field) {
  return [key, field](Line& line, const json& value) {
    return SetWords(key, line, value, line.request.*field);
  };
}

// One answer a line comes at its end: a stream would have nowhere to go.
Status SetStream(Line&, const json& value) {
  bool streams = false;
  RETURN_IF_ERROR(SetBool("stream", value, streams));
  if (!streams) return Status::Ok();
  return InvalidArgument("stream: got true, a line is answered at once; leave it out");
}

// What upstream fills short rows of a batch with; here no row is padded.
Status CheckPadId(Line&, const json& value) {
  std::vector<TokenId> ids;
  return SetIds("pad_id", value, ids);
}

Status SetSeed(Line& line, const json& value) {
  if (!value.is_number_unsigned()) return Wrong("random_seed", value, "an unsigned 64-bit integer");
  line.request.sampling.seed = value.get<uint64_t>();
  return Status::Ok();
}

// true and false as the tensor has it, or a number: anything but 0 and 1 means "never".
Status SetEarlyStopping(Line& line, const json& value) {
  int& early_stopping = line.request.sampling.early_stopping;
  if (!value.is_boolean()) return SetInteger("early_stopping", value, early_stopping);
  early_stopping = value.get<bool>() ? 1 : 0;
  return Status::Ok();
}

template <typename T>
Setters::value_type Float(const char* key, T SamplingParams::*field) {
  return {key, [key, field](Line& line, const json& value) {
            return SetFloat(key, value, line.request.sampling.*field);
          }};
}

template <typename T>
Setters::value_type Integer(const char* key, T SamplingParams::*field) {
  return {key, [key, field](Line& line, const json& value) {
            return SetInteger(key, value, line.request.sampling.*field);
          }};
}

const Setters& AllSetters() {
  static const auto* setters = new Setters{
      {"text_input", SetText},
      {"input_ids",
       [](Line& l, const json& v) { return SetIds("input_ids", v, l.request.input_ids); }},
      {"max_tokens",
       [](Line& l, const json& v) { return SetInteger("max_tokens", v, l.request.max_tokens); }},
      Float("temperature", &SamplingParams::temperature),
      Integer("top_k", &SamplingParams::top_k),
      Float("top_p", &SamplingParams::top_p),
      Float("min_p", &SamplingParams::min_p),
      {"random_seed", SetSeed},
      Float("repetition_penalty", &SamplingParams::repetition_penalty),
      Float("presence_penalty", &SamplingParams::presence_penalty),
      Float("frequency_penalty", &SamplingParams::frequency_penalty),
      {"end_id", SetEndIds},
      {"pad_id", CheckPadId},
      {"stream", SetStream},
      {"stop_words", Words("stop_words", &Request::stop_words)},
      {"bad_words", Words("bad_words", &Request::bad_words)},
      Integer("min_length", &SamplingParams::min_tokens),
      Integer("no_repeat_ngram_size", &SamplingParams::no_repeat_ngram_size),
      Float("top_p_min", &SamplingParams::top_p_min),
      Float("top_p_decay", &SamplingParams::top_p_decay),
      Integer("top_p_reset_ids", &SamplingParams::top_p_reset_id),
      Integer("beam_width", &SamplingParams::beam_width),
      Integer("num_return_sequences", &SamplingParams::num_return_sequences),
      Float("length_penalty", &SamplingParams::length_penalty),
      Float("beam_search_diversity_rate", &SamplingParams::beam_search_diversity_rate),
      {"early_stopping", SetEarlyStopping},
      {"return_log_probs",
       [](Line& l, const json& v) {
         return SetBool("return_log_probs", v, l.request.output.return_log_probs);
       }},
  };
  return *setters;
}

// Inputs of the ensemble that a line cannot have, and whether a value of them asks for nothing.
bool AsksForNothing(const json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0;
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty() ||
         (value.is_array() && std::all_of(value.begin(), value.end(), AsksForNothing));
}

constexpr std::string_view kNotOffered[] = {"embedding_bias_words",
                                            "embedding_bias_weights",
                                            "return_context_logits",
                                            "return_generation_logits",
                                            "prompt_embedding_table",
                                            "prompt_vocab_size",
                                            "lora_task_id",
                                            "lora_weights",
                                            "lora_config",
                                            "num_draft_tokens",
                                            "use_draft_logits"};

}  // namespace

Result<Request> ParseRunRequest(std::string_view line, const tokenizer::Tokenizer* tokenizer,
                                const RunDefaults& defaults) {
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return InvalidArgument("the line is not a JSON object");
  if (object.contains("text_input") == object.contains("input_ids"))
    return InvalidArgument("exactly one of text_input and input_ids is needed");
  Line result{.tokenizer = tokenizer, .request = {}};
  result.request.max_tokens = defaults.max_tokens;
  result.request.end_ids = defaults.end_ids;
  for (const auto& [key, value] : object.items()) {
    if (const auto found = AllSetters().find(key); found != AllSetters().end()) {
      RETURN_IF_ERROR(found->second(result, value));
    } else if (std::find(std::begin(kNotOffered), std::end(kNotOffered), key) !=
               std::end(kNotOffered)) {
      if (!AsksForNothing(value))
        return Unimplemented(key + ": is not offered by run; serve the model, or leave it out");
    } else {
      std::vector<std::string> known;
      for (const auto& [name, setter] : AllSetters()) known.push_back(name);
      const auto nearest = config::Nearest(key, known);
      return InvalidArgument("unknown key '" + key + "'" +
                             (nearest ? "; did you mean '" + *nearest + "'?" : ""));
    }
  }
  return std::move(result.request);
}

}  // namespace inflight::tool
