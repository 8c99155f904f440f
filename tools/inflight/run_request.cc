// SPDX-License-Identifier: Apache-2.0
#include "run_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/status_macros.h"
#include "config/schema.h"
#include "parameters/parameters.h"

namespace inflight::tool {
namespace {

using nlohmann::json;

struct Line {
  const Tokenizer* tokenizer;
  Request request;
};

using Setter = std::function<Status(Line&, const json&)>;
using Setters = std::map<std::string, Setter, std::less<>>;

Status Wrong(std::string_view key, const json& value, std::string_view needed) {
  return InvalidArgument(fmt::format("{}: got {}, needs {}", key,
                                     value.dump(-1, ' ', false, json::error_handler_t::replace),
                                     needed));
}

Result<int> ReadInteger(std::string_view key, const json& value) {
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int>::max())) {
    return static_cast<int>(value.get<uint64_t>());
  }
  if (!value.is_number_integer() || value.is_number_unsigned() ||
      value.get<int64_t>() < std::numeric_limits<int>::min())
    return Wrong(key, value, "a 32-bit integer");
  return static_cast<int>(value.get<int64_t>());
}

Result<bool> ReadBool(std::string_view key, const json& value) {
  if (!value.is_boolean()) return Wrong(key, value, "true or false");
  return value.get<bool>();
}

Status SetIds(std::string_view key, const json& value, std::vector<TokenId>& out) {
  out.clear();
  for (const json& element : value.is_array() ? value : json::array({value})) {
    ASSIGN_OR_RETURN(const TokenId id, ReadInteger(key, element));
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

Status SetMaxTokens(Line& line, const json& value) {
  ASSIGN_OR_RETURN(line.request.max_tokens, ReadInteger("max_tokens", value));
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
  ASSIGN_OR_RETURN(const bool streams, ReadBool("stream", value));
  if (!streams) return Status::Ok();
  return InvalidArgument("stream: got true, a line is answered at once; leave it out");
}

// What upstream fills short rows of a batch with; here no row is padded.
Status CheckPadId(Line&, const json& value) {
  std::vector<TokenId> ids;
  return SetIds("pad_id", value, ids);
}

// A parameter of the table, under the name that the text models have for it.
Status SetParameter(const parameters::Parameter& parameter, Line& line, const json& value) {
  const std::string_view key = parameter.text_name;
  const auto set = [&](auto typed) { return parameters::Set(parameter, key, typed, line.request); };
  switch (parameters::TypeOf(parameter)) {
    case parameters::Type::kFloat:
      if (!value.is_number()) return Wrong(key, value, "a number");
      return set(value.get<float>());
    case parameters::Type::kInteger: {
      if (parameter.is_switch && value.is_boolean()) return set(value.get<bool>() ? 1 : 0);
      ASSIGN_OR_RETURN(const int integer, ReadInteger(key, value));
      return set(integer);
    }
    case parameters::Type::kUnsigned64:
      if (!value.is_number_unsigned()) return Wrong(key, value, "an unsigned 64-bit integer");
      return set(value.get<uint64_t>());
    case parameters::Type::kBool: {
      ASSIGN_OR_RETURN(const bool is_set, ReadBool(key, value));
      return set(is_set);
    }
  }
  return Status::Ok();
}

// Outputs that a line of the answer has no place for.
constexpr std::string_view kNotAnswered[] = {"return_context_logits", "return_generation_logits",
                                             "num_top_log_probs"};

const Setters& AllSetters() {
  static const Setters setters = [] {
    Setters made = {
        {"text_input", SetText},
        {"input_ids",
         [](Line& l, const json& v) { return SetIds("input_ids", v, l.request.input_ids); }},
        {"max_tokens", SetMaxTokens},
        {"end_id", SetEndIds},
        {"pad_id", CheckPadId},
        {"stream", SetStream},
        {"stop_words", Words("stop_words", &Request::stop_words)},
        {"bad_words", Words("bad_words", &Request::bad_words)},
    };
    for (const parameters::Parameter& parameter : parameters::All()) {
      if (std::ranges::find(kNotAnswered, parameter.text_name) != std::end(kNotAnswered)) continue;
      made.emplace(parameter.text_name, [&parameter](Line& line, const json& value) {
        return SetParameter(parameter, line, value);
      });
    }
    return made;
  }();
  return setters;
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

constexpr std::string_view kNotOffered[] = {
    "embedding_bias_words", "embedding_bias_weights", "prompt_embedding_table",
    "prompt_vocab_size",    "lora_task_id",           "lora_weights",
    "lora_config",          "num_draft_tokens",       "use_draft_logits"};

bool IsNotOffered(std::string_view key) {
  return std::ranges::find(kNotOffered, key) != std::end(kNotOffered) ||
         std::ranges::find(kNotAnswered, key) != std::end(kNotAnswered);
}

}  // namespace

Result<RunRequest> ParseRunRequest(std::string_view line, const Tokenizer* tokenizer,
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
    } else if (IsNotOffered(key)) {
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
  RunRequest asked{.request = std::move(result.request), .seed_by_chance = {}};
  SamplingParams& sampling = asked.request.sampling;
  const bool has_seed = sampling.seed.has_value();
  parameters::SetSampling(defaults.model, sampling);
  if (!has_seed && parameters::IsDrawn(sampling))
    asked.seed_by_chance = sampling.seed = parameters::RandomSeed();
  return asked;
}

}  // namespace inflight::tool
