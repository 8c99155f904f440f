// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/body_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "base/status_macros.h"
#include "json/json_writer.h"
#include "json/valid_text.h"
#include "protocol/openai/names_elsewhere.h"
#include "protocol/openai/object_reader.h"

namespace inflight::openai {
namespace {

using json::Value;
using Kind = Value::Kind;

constexpr double kMostInt = std::numeric_limits<int>::max();
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = 65536;  // of all: each prompt's request has them for itself
constexpr size_t kMaxBiases = 1024;
constexpr double kMostBias = 100;
constexpr size_t kMaxComparedBytes = 64;  // of a client's text, with names and values of the table

std::string_view NameOf(Kind kind) {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "a boolean";
    case Kind::kNumber:
      return "a number";
    case Kind::kString:
      return "a string";
    case Kind::kArray:
      return "an array";
    case Kind::kObject:
      return "an object";
  }
  return "";
}

Status WrongType(std::string_view name, const Value& value, std::string_view wanted) {
  return InvalidArgument(
      name, "got " + std::string(NameOf(value.kind())) + ", must be " + std::string(wanted));
}

std::string Text(double value) {
  std::string text;
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    text = std::to_string(static_cast<int64_t>(value));
  } else {
    json::AppendDouble(text, value);
  }
  return text;
}

Status OutOfBounds(std::string_view name, const Value& value, double low, double high) {
  std::string bounds = "in [" + Text(low) + ", " + Text(high) + "]";
  if (high >= kMostInt) bounds = "at least " + Text(low);
  return InvalidArgument(name, "got " + Shortened(value.text()) + ", must be " + bounds);
}

Result<double> NumberIn(std::string_view name, const Value& value, double low, double high) {
  if (value.kind() != Kind::kNumber) return WrongType(name, value, "a number");
  ASSIGN_OR_RETURN(const double number, value.AsDouble());
  if (!(number >= low && number <= high)) return OutOfBounds(name, value, low, high);
  return number;
}

Result<int> IntegerIn(std::string_view name, const Value& value, double low, double high) {
  if (value.kind() != Kind::kNumber) return WrongType(name, value, "an integer");
  ASSIGN_OR_RETURN(const double number, value.AsDouble());
  if (number != std::floor(number))
    return InvalidArgument(name, "got " + Shortened(value.text()) + ", must be an integer");
  if (!(number >= low && number <= high)) return OutOfBounds(name, value, low, high);
  return static_cast<int>(number);
}

Result<std::string> TextOf(std::string_view name, const Value& value) {
  if (value.kind() != Kind::kString) return WrongType(name, value, "a string");
  return value.AsString();
}

// --- how members are read ---

template <auto kMember>
Status ReadFloat(const BodyField& field, const Value& value, Asked& asked) {
  ASSIGN_OR_RETURN(const double number, NumberIn(field.name, value, field.low, field.high));
  asked.*kMember = static_cast<float>(number);
  return Status::Ok();
}

template <auto kMember>
Status ReadInt(const BodyField& field, const Value& value, Asked& asked) {
  ASSIGN_OR_RETURN(asked.*kMember, IntegerIn(field.name, value, field.low, field.high));
  return Status::Ok();
}

template <auto kMember>
Status ReadBool(const BodyField& field, const Value& value, Asked& asked) {
  if (value.kind() != Kind::kBool) return WrongType(field.name, value, "true or false");
  ASSIGN_OR_RETURN(asked.*kMember, value.AsBool());
  return Status::Ok();
}

template <auto kMember>
Status ReadText(const BodyField& field, const Value& value, Asked& asked) {
  ASSIGN_OR_RETURN(asked.*kMember, TextOf(field.name, value));
  return Status::Ok();
}

template <auto kMember, Kind kKind>
Status Keep(const BodyField& field, const Value& value, Asked& asked) {
  if (value.kind() != kKind) return WrongType(field.name, value, NameOf(kKind));
  asked.*kMember = value;
  return Status::Ok();
}

template <auto kMember>
Status KeepAny(const BodyField&, const Value& value, Asked& asked) {
  asked.*kMember = value;
  return Status::Ok();
}

Status ReadToolChoice(const BodyField& field, const Value& value, Asked& asked) {
  if (value.kind() != Kind::kString && value.kind() != Kind::kObject)
    return WrongType(field.name, value, "a string or an object");
  asked.tool_choice = value;
  return Status::Ok();
}

Status ReadPrompt(const BodyField& field, const Value& value, Asked& asked) {
  if (value.kind() != Kind::kString && value.kind() != Kind::kArray)
    return WrongType(field.name, value, "a string, an array of strings or arrays of token ids");
  asked.prompt = value;
  return Status::Ok();
}

Status ReadInput(const BodyField& field, const Value& value, Asked& asked) {
  if (value.kind() != Kind::kString && value.kind() != Kind::kArray)
    return WrongType(field.name, value, "a string or an array of items");
  asked.input = value;
  return Status::Ok();
}

Status ReadEffort(const BodyField& field, const Value& value, Asked& asked) {
  ASSIGN_OR_RETURN(asked.reasoning_effort, TextOf(field.name, value));
  return CheckEffort(field.name, asked.reasoning_effort);
}

Status ReadSystem(const BodyField& field, const Value& value, Asked& asked) {
  if (value.kind() != Kind::kString && value.kind() != Kind::kArray)
    return WrongType(field.name, value, "a string or an array of text blocks");
  asked.system = value;
  return Status::Ok();
}

// Of Anthropic's: {"user_id": ...}, who asks; the server has no use for it.
Status ReadUserId(const BodyField& field, const Value& value, Asked&) {
  ASSIGN_OR_RETURN(const auto members, MembersOf<1>(value, std::string(field.name),
                                                    "of what is said of a request", {"user_id"}));
  return members[0] ? TextAt(std::string(field.name) + ".user_id", members[0]).status()
                    : Status::Ok();
}

Status ReadCacheControl(const BodyField& field, const Value& value, Asked&) {
  return CheckCacheControl(std::string(field.name), value);
}

// Edits of a conversation that leave it as it is: thinking is kept.
Status ReadContextManagement(const BodyField& field, const Value& value, Asked&) {
  const std::string where(field.name);
  ASSIGN_OR_RETURN(const auto members,
                   MembersOf<1>(value, where, "what is done to conversations", {"edits"}));
  if (!members[0]) return Status::Ok();
  if (members[0]->kind() != Kind::kArray)
    return InvalidArgument(where + ".edits", "must be an array");
  size_t index = 0;
  return members[0]->ForEachElement([&](const Value& edit) -> Status {
    const std::string at = At(where + ".edits", index++);
    ASSIGN_OR_RETURN(const std::string type, TypeAt(at, edit));
    if (type != "clear_thinking_20251015")
      return Unimplemented(
          at + ".type",
          "got '" + Shortened(type) + "': conversations are taken as they are; leave it out");
    ASSIGN_OR_RETURN(const auto parts, MembersOf<2>(edit, at, "an edit", {"type", "keep"}));
    if (parts[1] && parts[1]->text() == "\"all\"") return Status::Ok();
    return Unimplemented(at + ".keep",
                         "is not supported but for \"all\": the model's template says "
                         "which thinking is kept; leave the edit out");
  });
}

Status ReadTruncation(const BodyField& field, const Value& value, Asked& asked) {
  ASSIGN_OR_RETURN(const std::string said, TextOf(field.name, value));
  asked.truncates = said == "auto";
  if (asked.truncates || said == "disabled") return Status::Ok();
  return InvalidArgument(field.name, "got '" + Shortened(said) + "', must be auto or disabled");
}

// Says who asks; the server has no use for it.
Status ReadLabel(const BodyField& field, const Value& value, Asked&) {
  return TextOf(field.name, value).status();
}

Status ReadSeed(const BodyField& field, const Value& value, Asked& asked) {
  if (value.kind() != Kind::kNumber || !value.IsInteger())
    return WrongType(field.name, value, "an integer of 64 bits");
  if (const auto number = value.AsUint(); number.ok()) {
    asked.seed = *number;
    return Status::Ok();
  }
  const auto number = value.AsInt();
  if (!number.ok())
    return InvalidArgument(field.name,
                           "got " + Shortened(value.text()) + ", must be an integer of 64 bits");
  asked.seed = static_cast<uint64_t>(*number);
  return Status::Ok();
}

Status ReadStop(const BodyField& field, const Value& value, Asked& asked) {
  size_t num_bytes = 0;
  const auto add = [&](const Value& one) -> Status {
    if (one.kind() != Kind::kString)
      return WrongType(field.name, one, "a string or an array of strings");
    ASSIGN_OR_RETURN(std::string text, one.AsString());
    if (text.empty()) return InvalidArgument(field.name, "got an empty text, which ends nothing");
    if (asked.stop.size() == kMaxStops)
      return InvalidArgument(field.name, "got more than " + std::to_string(kMaxStops) + " texts");
    num_bytes += text.size();
    if (num_bytes > kMaxStopBytes)
      return InvalidArgument(
          field.name, "got texts of more than " + std::to_string(kMaxStopBytes) + " bytes in all");
    asked.stop.push_back(std::move(text));
    return Status::Ok();
  };
  if (value.kind() != Kind::kArray) return add(value);
  return value.ForEachElement(add);
}

Status ReadStopIds(const BodyField& field, const Value& value, Asked& asked) {
  if (value.kind() != Kind::kArray) return WrongType(field.name, value, "an array of token ids");
  return value.ForEachElement([&](const Value& one) -> Status {
    ASSIGN_OR_RETURN(const int id, IntegerIn(field.name, one, 0, kMostInt));
    if (asked.stop_token_ids.size() == kMaxStops)
      return InvalidArgument(field.name, "got more than " + std::to_string(kMaxStops) + " ids");
    asked.stop_token_ids.push_back(id);
    return Status::Ok();
  });
}

Status ReadBias(const BodyField& field, const Value& value, Asked& asked) {
  if (value.kind() != Kind::kObject)
    return WrongType(field.name, value, "an object of token ids and biases");
  return value.ForEachMember([&](std::string_view key, const Value& bias) -> Status {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc{} || end != key.data() + key.size() || id < 0)
      return InvalidArgument(field.name,
                             "got the key '" + Shortened(key) + "', must be a token id");
    ASSIGN_OR_RETURN(const double number, NumberIn(field.name, bias, -kMostBias, kMostBias));
    if (asked.logit_bias.size() == kMaxBiases)
      return InvalidArgument(field.name, "got more than " + std::to_string(kMaxBiases) + " ids");
    asked.logit_bias.emplace_back(id, static_cast<float>(number));
    return Status::Ok();
  });
}

Status ReadStreamOptions(const BodyField& field, const Value& value, Asked& asked) {
  if (value.kind() != Kind::kObject) return WrongType(field.name, value, "an object");
  asked.has_stream_options = true;
  return value.ForEachMember([&](std::string_view key, const Value& option) -> Status {
    const std::string name = std::string(field.name) + "." + std::string(key);
    if (key == "include_usage") {
      if (option.kind() != Kind::kBool) return WrongType(name, option, "true or false");
      ASSIGN_OR_RETURN(asked.include_usage, option.AsBool());
      return Status::Ok();
    }
    if (key == "include_obfuscation" && option.text() == "false") return Status::Ok();
    return Unimplemented(Shortened(name), "is not supported; include_usage is");
  });
}

// Of completions: how many likely tokens are told beside each.
Status ReadLogProbCount(const BodyField& field, const Value& value, Asked& asked) {
  ASSIGN_OR_RETURN(asked.top_logprobs, IntegerIn(field.name, value, field.low, field.high));
  asked.logprobs = true;
  return Status::Ok();
}

constexpr std::string_view kTextOnly = "answers are text alone; leave it out";
constexpr std::string_view kLeaveOut = "leave it out";
constexpr BodyKinds kBoth = kChat | kCompletion;
constexpr BodyKinds kAnthropic = kMessages | kCountTokens;
constexpr BodyKinds kGenerate = kBoth | kMessages | kResponse;
constexpr BodyKinds kTemplated = kChat | kTokenize | kAnthropic;
constexpr BodyKinds kAll = kBoth | kTokenize | kDetokenize | kAnthropic | kResponse;
constexpr std::string_view kNoTools = "this server runs no tools; leave it out";

// clang-format off
constexpr BodyField kFields[] = {
    {"model", kAll, ReadText<&Asked::model>},
    {"messages", kTemplated, Keep<&Asked::messages, Kind::kArray>},
    {"prompt", kCompletion | kTokenize, ReadPrompt},
    {"tokens", kDetokenize, Keep<&Asked::tokens, Kind::kArray>},
    {"add_special_tokens", kTokenize, ReadBool<&Asked::add_special_tokens>},
    {"add_generation_prompt", kChat | kTokenize, ReadBool<&Asked::add_generation_prompt>},
    {"chat_template_kwargs", kTemplated | kResponse, Keep<&Asked::chat_template_kwargs, Kind::kObject>},
    {"max_output_tokens", kResponse, ReadInt<&Asked::max_tokens>, 1, kMostInt},
    {"max_tokens", kBoth | kMessages, ReadInt<&Asked::max_tokens>, 1, kMostInt},
    {"max_completion_tokens", kChat, ReadInt<&Asked::max_completion_tokens>, 1, kMostInt},
    {"min_tokens", kGenerate, ReadInt<&Asked::min_tokens>, 0, kMostInt},
    {"temperature", kGenerate, ReadFloat<&Asked::temperature>, 0, 100},
    {"top_p", kGenerate, ReadFloat<&Asked::top_p>, 0, 1},
    {"top_k", kGenerate, ReadInt<&Asked::top_k>, -1, kMostInt},
    {"min_p", kGenerate, ReadFloat<&Asked::min_p>, 0, 1},
    {"repetition_penalty", kGenerate, ReadFloat<&Asked::repetition_penalty>, 1e-3, 1e3},
    {"presence_penalty", kGenerate, ReadFloat<&Asked::presence_penalty>, -2, 2},
    {"frequency_penalty", kGenerate, ReadFloat<&Asked::frequency_penalty>, -2, 2},
    {"logit_bias", kGenerate, ReadBias},
    {"seed", kGenerate, ReadSeed},
    {"n", kBoth, ReadInt<&Asked::n>, 1, 128},
    {"best_of", kCompletion, ReadInt<&Asked::best_of>, 1, 128},
    {"stop", kBoth, ReadStop},
    {"stop_sequences", kMessages, ReadStop},
    {"stop_token_ids", kGenerate, ReadStopIds},
    {"ignore_eos", kGenerate, ReadBool<&Asked::ignore_eos>},
    {"logprobs", kChat, ReadBool<&Asked::logprobs>},
    {"top_logprobs", kChat | kResponse, ReadInt<&Asked::top_logprobs>, 0, 20},
    {"logprobs", kCompletion, ReadLogProbCount, 0, 20},
    {"echo", kCompletion, ReadBool<&Asked::echo>},
    {"stream", kGenerate, ReadBool<&Asked::stream>},
    {"stream_options", kBoth, ReadStreamOptions},
    {.name = "stream_options", .kinds = kResponse, .remedy = "streams have all events; leave it out", .neutral = R"({"include_obfuscation":false})"},
    {"priority", kGenerate, ReadInt<&Asked::priority>, -1000, 1000},
    {"cache_salt", kGenerate, ReadText<&Asked::cache_salt>},
    {"user", kBoth | kResponse, ReadLabel},
    {"safety_identifier", kBoth | kResponse, ReadLabel},
    {"prompt_cache_key", kResponse, ReadLabel},
    {.name = "suffix", .kinds = kCompletion, .remedy = "text is continued at its end alone; leave it out", .neutral = "\"\""},
    {"tools", kTemplated | kResponse, Keep<&Asked::tools, Kind::kArray>},
    {"tool_choice", kChat | kResponse, ReadToolChoice},
    {"input", kResponse, ReadInput},
    {"instructions", kResponse, Keep<&Asked::instructions, Kind::kString>},
    {"text", kResponse, Keep<&Asked::text, Kind::kObject>},
    {"reasoning", kResponse, Keep<&Asked::reasoning, Kind::kObject>},
    {"include", kResponse, Keep<&Asked::include, Kind::kArray>},
    {"metadata", kResponse, Keep<&Asked::metadata, Kind::kObject>},
    {"previous_response_id", kResponse, ReadText<&Asked::previous_response_id>},
    {"store", kResponse, ReadBool<&Asked::store>},
    {"truncation", kResponse, ReadTruncation},
    {.name = "background", .kinds = kResponse, .remedy = "answers come at once or as a stream; leave it out"},
    {.name = "conversation", .kinds = kResponse, .remedy = "use previous_response_id"},
    {.name = "prompt", .kinds = kResponse, .remedy = "this server has no stored prompts; use instructions and input"},
    {.name = "max_tool_calls", .kinds = kResponse, .remedy = kNoTools},
    {.name = "service_tier", .kinds = kResponse, .remedy = "all requests are of one tier; leave it out", .neutral = "\"auto\""},
    {.name = "context_management", .kinds = kResponse, .remedy = "conversations are taken as they are; leave it out"},
    {.name = "access_programs", .kinds = kResponse, .remedy = kLeaveOut},
    {.name = "background_options", .kinds = kResponse, .remedy = "answers come at once or as a stream; leave it out"},
    {.name = "image", .kinds = kResponse, .remedy = kTextOnly},
    {.name = "moderation", .kinds = kChat | kResponse, .remedy = kLeaveOut},
    {.name = "prompt_cache_options", .kinds = kChat | kResponse, .remedy = "equal beginnings are found by themselves; leave it out"},
    {.name = "prompt_cache_retention", .kinds = kChat | kResponse, .remedy = "equal beginnings are found by themselves; leave it out", .neutral = "\"in_memory\""},
    {"system", kAnthropic, ReadSystem},
    {"tool_choice", kAnthropic, Keep<&Asked::tool_choice, Kind::kObject>},
    {"thinking", kAnthropic, Keep<&Asked::thinking, Kind::kObject>},
    {"metadata", kMessages, ReadUserId},
    {"cache_control", kAnthropic, ReadCacheControl},
    {"output_config", kAnthropic, Keep<&Asked::output_config, Kind::kObject>},
    {.name = "container", .kinds = kMessages, .remedy = kNoTools},
    {.name = "mcp_servers", .kinds = kAnthropic, .remedy = kNoTools},
    {"context_management", kAnthropic, ReadContextManagement},
    {.name = "compaction", .kinds = kAnthropic, .remedy = "conversations are taken as they are; leave it out"},
    {.name = "thread", .kinds = kMessages, .remedy = "messages has the conversation; leave it out"},
    {.name = "fallbacks", .kinds = kMessages, .remedy = "the model that is asked answers; leave it out"},
    {.name = "fallback_credit_token", .kinds = kMessages, .remedy = kLeaveOut},
    {.name = "billing_policy", .kinds = kAnthropic, .remedy = kLeaveOut},
    {.name = "diagnostics", .kinds = kMessages, .remedy = kLeaveOut},
    {.name = "inference_geo", .kinds = kMessages, .remedy = kLeaveOut},
    {.name = "service_tier", .kinds = kMessages, .remedy = "all requests are of one tier; leave it out", .neutral = "\"auto\""},
    {.name = "speed", .kinds = kAnthropic, .remedy = "all requests are of one speed; leave it out", .neutral = "\"standard\""},
    {"parallel_tool_calls", kChat | kResponse, ReadBool<&Asked::parallel_tool_calls>},
    {.name = "functions", .kinds = kChat, .remedy = "it is the older name of tools"},
    {.name = "function_call", .kinds = kChat, .remedy = "it is the older name of tool_choice", .neutral = "\"none\""},
    {"response_format", kBoth, Keep<&Asked::response_format, Kind::kObject>},
    {"structured_outputs", kBoth, Keep<&Asked::structured_outputs, Kind::kObject>},
    {"guided_json", kBoth, KeepAny<&Asked::guided_json>},
    {"guided_regex", kBoth, Keep<&Asked::guided_regex, Kind::kString>},
    {"guided_choice", kBoth, Keep<&Asked::guided_choice, Kind::kArray>},
    {"guided_grammar", kBoth, Keep<&Asked::guided_grammar, Kind::kString>},
    {.name = "guided_decoding_backend", .kinds = kBoth, .remedy = "this server has one; leave it out", .neutral = "\"auto\""},
    {.name = "guided_whitespace_pattern", .kinds = kBoth, .remedy = "use guided_regex or guided_grammar"},
    {.name = "audio", .kinds = kChat, .remedy = kTextOnly},
    {.name = "modalities", .kinds = kChat, .remedy = kTextOnly, .neutral = R"(["text"])"},
    {.name = "prediction", .kinds = kChat, .remedy = kLeaveOut},
    {"reasoning_effort", kChat | kTokenize, ReadEffort},
    {"thinking_budget", kChat, ReadInt<&Asked::thinking_budget>, 0, kMostInt},
    {.name = "verbosity", .kinds = kChat, .remedy = kLeaveOut},
    {.name = "web_search_options", .kinds = kChat, .remedy = "this server searches nothing; leave it out", .asks_when_empty = true},
    {.name = "store", .kinds = kChat, .remedy = "nothing is stored; leave it out"},
    {.name = "metadata", .kinds = kChat, .remedy = "nothing is stored; leave it out"},
    {.name = "service_tier", .kinds = kChat, .remedy = "all requests are of one tier; leave it out", .neutral = "\"auto\""},
    {.name = "prompt_cache_key", .kinds = kChat, .remedy = "equal beginnings are found by themselves; cache_salt keeps them apart"},
    {.name = "chat_template", .kinds = kChat | kTokenize, .remedy = "templates are programs, and the server's own is used; start it with --chat-template FILE"},
    {"continue_final_message", kChat | kTokenize, ReadBool<&Asked::continues>},
    {.name = "documents", .kinds = kChat, .remedy = "put them into messages"},
    {.name = "use_beam_search", .kinds = kBoth, .remedy = "beams are found by the KServe endpoints (beam_width)"},
    {.name = "length_penalty", .kinds = kBoth, .remedy = "it is of beam search; leave it out", .neutral = "1.0"},
    {.name = "early_stopping", .kinds = kBoth, .remedy = "it is of beam search; leave it out"},
    {.name = "bad_words", .kinds = kBoth, .remedy = "use logit_bias, or the KServe endpoints (bad_words)"},
    {.name = "allowed_token_ids", .kinds = kBoth, .remedy = "use logit_bias"},
    {.name = "prompt_logprobs", .kinds = kBoth, .remedy = kLeaveOut},
    {.name = "truncate_prompt_tokens", .kinds = kBoth, .remedy = "shorten the prompt"},
    {.name = "include_stop_str_in_output", .kinds = kBoth, .remedy = "answers end before the stop text"},
    {.name = "skip_special_tokens", .kinds = kBoth, .remedy = "special tokens have no text", .neutral = "true"},
    {.name = "spaces_between_special_tokens", .kinds = kBoth, .remedy = "special tokens have no text", .neutral = "true"},
};
// clang-format on

std::string WithoutBlanks(std::string_view text) {
  std::string kept(text);
  std::erase_if(kept, [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; });
  return kept;
}

bool AsksForNothing(const BodyField& field, const Value& value) {
  if (value.text_bytes() > kMaxComparedBytes) return false;
  const std::string text = WithoutBlanks(value.text());
  const bool is_empty = text == "false" || text == "[]" || text == "{}";
  return (is_empty && !field.asks_when_empty) || (!field.neutral.empty() && text == field.neutral);
}

Status UnknownMember(std::string_view name, BodyKinds kind) {
  std::string what = "is not a member of this request";
  if (const auto meant = MemberElsewhere(name, kind)) what += "; " + *meant;
  return InvalidArgument(Shortened(name), what);
}

Status ReadMember(std::string_view name, const Value& value, BodyKinds kind, Asked& asked) {
  const auto* const field = std::ranges::find_if(
      kFields, [&](const BodyField& row) { return row.name == name && (row.kinds & kind) != 0; });
  if (field == std::end(kFields)) return UnknownMember(name, kind);
  if (value.kind() == Kind::kNull) return Status::Ok();
  if (field->read != nullptr) return field->read(*field, value, asked);
  if (AsksForNothing(*field, value)) return Status::Ok();
  return Unimplemented(name, "is not supported: " + std::string(field->remedy));
}

// What members say together.
Status CheckTogether(const Asked& asked, BodyKinds kind) {
  if (asked.has_stream_options && !asked.stream)
    return InvalidArgument("stream_options", "is of streams; set stream too, or leave it out");
  if ((kind & kChat) != 0 && asked.top_logprobs > 0 && !asked.logprobs)
    return InvalidArgument("top_logprobs", "needs logprobs: true");
  if (asked.max_tokens && asked.max_completion_tokens &&
      *asked.max_tokens != *asked.max_completion_tokens)
    return InvalidArgument("max_tokens",
                           "differs from max_completion_tokens, its newer name; "
                           "give one of them");
  if (asked.best_of && *asked.best_of < asked.n)
    return InvalidArgument("best_of", "got " + std::to_string(*asked.best_of) +
                                          ", must be at least n, " + std::to_string(asked.n));
  if (asked.best_of && *asked.best_of > asked.n && asked.stream)
    return InvalidArgument("best_of", "a stream cannot choose the best; leave it or stream out");
  if (asked.echo && asked.logprobs)
    return Unimplemented("logprobs", "is not supported beside echo: the prompt's tokens have none");
  return Status::Ok();
}

}  // namespace

Status CheckEffort(std::string_view where, std::string_view effort) {
  constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium",
                                                        "high", "xhigh",   "max"};
  if (std::ranges::find(kEfforts, effort) != kEfforts.end()) return Status::Ok();
  return InvalidArgument(where, "got '" + Shortened(effort) +
                                    "', must be none, minimal, low, medium, high, xhigh or max");
}

std::span<const BodyField> BodyFields() { return kFields; }

Result<Asked> ParseBody(std::string_view body, BodyKinds kind) {
  if (json::ValidText(body) != body) return InvalidArgument("the body is not valid UTF-8");
  const auto root = Value::Parse(body);
  if (!root.ok()) return InvalidArgument("the body is no JSON: " + root.status().message());
  if (root->kind() != Kind::kObject)
    return InvalidArgument("the body is " + std::string(NameOf(root->kind())) +
                           ", must be a JSON object");
  Asked asked;
  std::set<std::string, std::less<>> seen;
  RETURN_IF_ERROR(root->ForEachMember([&](std::string_view name, const Value& value) -> Status {
    if (!seen.emplace(name).second) return InvalidArgument(Shortened(name), "is given twice");
    return ReadMember(name, value, kind, asked);
  }));
  RETURN_IF_ERROR(CheckTogether(asked, kind));
  return asked;
}

}  // namespace inflight::openai
