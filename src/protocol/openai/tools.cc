// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/tools.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/status_macros.h"

namespace inflight::openai {
namespace {

using answer_parts::AnswerFormat;
using answer_parts::FunctionNames;
using json::Value;
using Kind = Value::Kind;

constexpr size_t kMaxTools = 1024;
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
  return InvalidArgument(where, "got '" + name.substr(0, 64) + "', must be 1 to " +
                                    std::to_string(kMaxNameBytes) +
                                    " letters, digits, '_' and '-'");
}

Status CheckParameters(const std::string& where, const Value& parameters) {
  if (parameters.kind() != Kind::kObject)
    return InvalidArgument(where, "must be an object, a JSON schema");
  constexpr std::array<std::string_view, 1> kNames = {"type"};
  const auto [type] = parameters.Pick(kNames);
  if (type && type->text() != "\"object\"")
    return InvalidArgument(
        where + ".type", "got " + std::string(type->text().substr(0, 64)) + ", must be \"object\"");
  return Status::Ok();
}

Result<std::string> ReadFunction(const std::string& where, const Value& function) {
  if (function.kind() != Kind::kObject) return InvalidArgument(where, "must be an object");
  std::string name;
  RETURN_IF_ERROR(function.ForEachMember([&](std::string_view key, const Value& value) -> Status {
    const std::string member = where + "." + std::string(key.substr(0, 64));
    if (value.kind() == Kind::kNull) return Status::Ok();
    if (key == "name" || key == "description") {
      if (value.kind() != Kind::kString) return InvalidArgument(member, "must be a string");
      if (key == "name") {
        ASSIGN_OR_RETURN(name, value.AsString());
      }
      return Status::Ok();
    }
    if (key == "parameters") return CheckParameters(member, value);
    if (key == "strict") {
      if (value.text() == "false") return Status::Ok();
      return Unimplemented(member, "is not supported: arguments are not guided; leave it out");
    }
    return InvalidArgument(member,
                           "is not a member of a function; those are name, description, "
                           "parameters and strict");
  }));
  RETURN_IF_ERROR(CheckName(where + ".name", name));
  return name;
}

Status CheckChoice(const Asked& asked) {
  if (!asked.tool_choice) return Status::Ok();
  const Value& choice = *asked.tool_choice;
  if (choice.text() == "\"none\"" || choice.text() == "\"auto\"") return Status::Ok();
  const bool is_known = choice.text() == "\"required\"" || choice.kind() == Kind::kObject;
  if (is_known)
    return Unimplemented("tool_choice",
                         "is not supported but for auto and none: a model is not made to call");
  return InvalidArgument("tool_choice", "got " + std::string(choice.text().substr(0, 64)) +
                                            ", must be \"auto\" or \"none\"");
}

// Whether the word `tools` stands in it: a template that has it not shows none to the model.
bool KnowsTools(std::string_view source) {
  constexpr std::string_view kWord = "tools";
  for (size_t at = source.find(kWord); at != std::string::npos; at = source.find(kWord, at + 1)) {
    const size_t end = at + kWord.size();
    if ((at == 0 || !IsOfWord(source[at - 1])) && (end == source.size() || !IsOfWord(source[end])))
      return true;
  }
  return false;
}

Result<const answer_parts::CallFormat*> FormatOfCalls(const std::string& named,
                                                      std::string_view source) {
  if (!KnowsTools(source))
    return InvalidArgument("tools",
                           "this model's chat template shows it no tools; leave them out, or "
                           "start the server with --chat-template FILE");
  if (named == kNone)
    return InvalidArgument("tools", "this server was started with --tool-call-format none");
  if (named != kAuto) return answer_parts::CallFormatNamed(named);
  if (const auto* format = answer_parts::FindCallFormat(source)) return format;
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
      return Unimplemented(where + ".type", "got " + std::string(type->text().substr(0, 64)) +
                                                ": tools are functions alone");
    if (!function) return InvalidArgument(where + ".function", "is missing");
    ASSIGN_OR_RETURN(const std::string name, ReadFunction(where + ".function", *function));
    if (!names->insert(name).second)
      return InvalidArgument(where + ".function.name", "got '" + name + "' for the second time");
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
  if (formats.reasoning == kAuto) {
    format.reasoning = answer_parts::FindReasoningTags(chat_template.source());
  } else if (formats.reasoning != kNone) {
    ASSIGN_OR_RETURN(format.reasoning, answer_parts::ReasoningTagsNamed(formats.reasoning));
  }
  return format;
}

std::vector<TokenId> ShownTokens(const AnswerFormat& format, const Tokenizer& tokenizer) {
  std::vector<TokenId> shown;
  const auto add = [&](std::string_view text) {
    if (text.empty()) return;
    const auto id = tokenizer.TokenToId(text);
    if (id && tokenizer.IsSpecial(*id)) shown.push_back(*id);
  };
  if (format.calls != nullptr) std::ranges::for_each(format.calls->markers, add);
  if (format.reasoning != nullptr) {
    add(format.reasoning->begin);
    add(format.reasoning->end);
  }
  return shown;
}

}  // namespace inflight::openai
