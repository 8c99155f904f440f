// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/status_macros.h"
#include "protocol/openai/guided_calls.h"
#include "protocol/openai/object_reader.h"
#include "protocol/openai/reasoning.h"

namespace inflight::openai {
namespace {

using answer_parts::AnswerFormat;
using answer_parts::FunctionNames;
using json::Value;
using Kind = Value::Kind;

constexpr size_t kMaxNameBytes = 128;
constexpr std::string_view kAuto = "auto";
constexpr std::string_view kNone = "none";

bool IsOfWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

Status CheckName(const std::string& where, const std::string& name) {
  const auto is_of_name = [](char c) { return IsOfWord(c) || c == '-'; };
  if (!name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, is_of_name))
    return Status::Ok();
  return InvalidArgument(where, "got '" + Shortened(name) + "', must be 1 to " +
                                    std::to_string(kMaxNameBytes) +
                                    " letters, digits, '_' and '-'");
}

Status CheckParameters(const std::string& where, const Value& parameters) {
  if (parameters.kind() != Kind::kObject)
    return InvalidArgument(where, "must be an object, a JSON schema");
  constexpr std::array<std::string_view, 1> kNames = {"type"};
  const auto [type] = parameters.Pick(kNames);
  if (type && type->text() != "\"object\"")
    return InvalidArgument(where + ".type",
                           "got " + Shortened(type->text()) + ", must be \"object\"");
  return Status::Ok();
}

// Whether a schema, or one of those that it may be, is of texts.
bool IsOfTexts(const Value& schema) {
  if (schema.kind() != Kind::kObject) return false;
  constexpr std::array<std::string_view, 2> kNames = {"type", "anyOf"};
  const auto [type, any] = schema.Pick(kNames);
  bool is_of_texts = type && type->text() == "\"string\"";
  const auto look = [&](const Value& element) {
    constexpr std::array<std::string_view, 1> kType = {"type"};
    const bool is_schema = element.kind() == Kind::kObject;
    const auto named = is_schema ? std::get<0>(element.Pick(kType)) : std::optional(element);
    is_of_texts = is_of_texts || (named && named->text() == "\"string\"");
    return Status::Ok();
  };
  for (const auto& list : {type, any})
    if (list && list->kind() == Kind::kArray && !list->ForEachElement(look).ok()) return false;
  return is_of_texts;
}

answer_parts::TextParameters TextsOf(const Value& parameters) {
  answer_parts::TextParameters texts;
  constexpr std::array<std::string_view, 1> kNames = {"properties"};
  const auto [properties] = parameters.Pick(kNames);
  if (!properties || properties->kind() != Kind::kObject) return texts;
  const Status read = properties->ForEachMember([&](std::string_view name, const Value& schema) {
    if (IsOfTexts(schema)) texts.emplace(name);
    return Status::Ok();
  });
  return read.ok() ? texts : answer_parts::TextParameters{};
}

// A function's name, and its parameters that are texts.
using Named = FunctionNames::value_type;

Result<Named> ReadFunction(const std::string& where, const Value& function) {
  if (function.kind() != Kind::kObject) return InvalidArgument(where, "must be an object");
  std::string name;
  answer_parts::TextParameters texts;
  RETURN_IF_ERROR(function.ForEachMember([&](std::string_view key, const Value& value) -> Status {
    const std::string member = where + "." + Shortened(key);
    if (value.kind() == Kind::kNull) return Status::Ok();
    if (key == "name" || key == "description") {
      if (value.kind() != Kind::kString) return InvalidArgument(member, "must be a string");
      if (key == "name") {
        ASSIGN_OR_RETURN(name, value.AsString());
      }
      return Status::Ok();
    }
    if (key == "parameters") {
      RETURN_IF_ERROR(CheckParameters(member, value));
      texts = TextsOf(value);
      return Status::Ok();
    }
    if (key == "strict") {
      if (value.kind() == Kind::kBool) return Status::Ok();  // ReadGuidedCalls does the rest
      return InvalidArgument(member, "must be true or false");
    }
    return InvalidArgument(member,
                           "is not a member of a function; those are name, description, "
                           "parameters and strict");
  }));
  RETURN_IF_ERROR(CheckName(where + ".name", name));
  return Named{name, std::move(texts)};
}

Status CheckChoice(const Asked& asked) {
  if (!asked.tool_choice) return Status::Ok();
  const Value& choice = *asked.tool_choice;
  if (choice.text() == "\"none\"" || choice.text() == "\"auto\"") return Status::Ok();
  if (ForcesCalls(asked)) return Status::Ok();  // ReadGuidedCalls says the rest
  return InvalidArgument("tool_choice", "got " + Shortened(choice.text()) +
                                            ", must be \"auto\", \"none\", \"required\" or an "
                                            "object that names functions");
}

Result<const answer_parts::CallFormat*> FormatOfCalls(const std::string& named,
                                                      std::string_view source) {
  if (!conversation::KnowsWord(source, "tools"))
    return InvalidArgument("tools",
                           "this model's chat template shows it no tools; leave them out, or "
                           "start the server with --chat-template FILE");
  if (named == kNone)
    return InvalidArgument("tools", "this server was started with --tool-call-format none");
  const auto* const found = answer_parts::FindCallFormat(source);
  if (found != nullptr && (named == kAuto || named == found->name)) return found;
  if (named != kAuto) return answer_parts::CallFormatNamed(named);
  return InvalidArgument("tools",
                         "this model's chat template does not show in which format it calls; "
                         "start the server with --tool-call-format NAME");
}

}  // namespace

Status CheckFormats(const MessageFormats& formats) {
  if (formats.tool_calls != kAuto && formats.tool_calls != kNone)
    RETURN_IF_ERROR(answer_parts::CallFormatNamed(formats.tool_calls)
                        .status()
                        .WithPrefix("--tool-call-format"));
  if (formats.reasoning != kAuto && formats.reasoning != kNone)
    RETURN_IF_ERROR(answer_parts::ReasoningTagsNamed(formats.reasoning)
                        .status()
                        .WithPrefix("--reasoning-format"));
  return Status::Ok();
}

bool ShowsTools(const Asked& asked) {
  const auto count = asked.tools ? asked.tools->NumElements() : Result<size_t>(0);
  const bool has_tools = count.ok() && *count > 0;
  return has_tools && !(asked.tool_choice && asked.tool_choice->text() == "\"none\"");
}

Result<std::shared_ptr<const FunctionNames>> ReadTools(const Asked& asked) {
  auto names = std::make_shared<FunctionNames>();
  RETURN_IF_ERROR(CheckChoice(asked));
  size_t index = 0;
  const auto read = [&](const Value& tool) -> Status {
    const std::string where = "tools[" + std::to_string(index++) + "]";
    if (index > kMaxTools)
      return InvalidArgument("tools", "got more than " + std::to_string(kMaxTools));
    if (tool.kind() != Kind::kObject) return InvalidArgument(where, "must be an object");
    constexpr std::array<std::string_view, 2> kNames = {"type", "function"};
    const auto [type, function] = tool.Pick(kNames);
    if (!type || type->kind() != Kind::kString)
      return InvalidArgument(where + ".type", "must be \"function\"");
    if (type->text() != "\"function\"")
      return Unimplemented(where + ".type",
                           "got " + Shortened(type->text()) + ": tools are functions alone");
    if (!function) return InvalidArgument(where + ".function", "is missing");
    ASSIGN_OR_RETURN(Named named, ReadFunction(where + ".function", *function));
    const auto [it, is_new] = names->insert(std::move(named));
    if (!is_new)
      return InvalidArgument(where + ".function.name",
                             "got '" + it->first + "' for the second time");
    return Status::Ok();
  };
  if (asked.tools) RETURN_IF_ERROR(asked.tools->ForEachElement(read));
  return std::shared_ptr<const FunctionNames>(std::move(names));
}

Result<AnswerFormat> ChooseFormat(const MessageFormats& formats, const Asked& asked,
                                  const ChatTemplate& chat_template) {
  AnswerFormat format;
  ASSIGN_OR_RETURN(format.names, ReadTools(asked));
  if (ShowsTools(asked)) {
    ASSIGN_OR_RETURN(format.calls, FormatOfCalls(formats.tool_calls, chat_template.source()));
    format.one_call = !asked.parallel_tool_calls;
  }
  ASSIGN_OR_RETURN(format.reasoning, ReasoningOf(formats, chat_template));
  // Its text is in messages, whoever reads them: what is not asked for is content.
  if (format.reasoning == nullptr && format.calls == nullptr) {
    const auto* const found = answer_parts::FindCallFormat(chat_template.source());
    if (found != nullptr && found->has_channels)
      format = {.calls = found, .names = std::make_shared<const FunctionNames>()};
  }
  const bool has_channels = format.reasoning != nullptr && format.reasoning->has_channels;
  if (has_channels && format.calls != nullptr && !format.calls->has_channels)
    return InvalidArgument(
        "tools", fmt::format("calls are written as {}, and reasoning as {}; start the server with "
                             "--tool-call-format {} or another --reasoning-format",
                             format.calls->name, format.reasoning->name, format.reasoning->name));
  return format;
}

Result<const answer_parts::ReasoningTags*> ReasoningOf(const MessageFormats& formats,
                                                       const ChatTemplate& chat_template) {
  if (formats.reasoning == kAuto) return answer_parts::FindReasoningTags(chat_template.source());
  if (formats.reasoning == kNone) return nullptr;
  return answer_parts::ReasoningTagsNamed(formats.reasoning);
}

std::vector<TokenId> ShownTokens(const AnswerFormat& format, const Tokenizer& tokenizer) {
  std::vector<TokenId> shown;
  const auto add = [&](std::string_view text) {
    const auto id = tokenizer.TokenToId(text);
    if (id && tokenizer.IsSpecial(*id)) shown.push_back(*id);
  };
  std::ranges::for_each(format.Markers(), add);
  return shown;
}

}  // namespace inflight::openai
