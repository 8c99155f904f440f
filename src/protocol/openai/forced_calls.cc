// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/forced_calls.h"

#include <array>
#include <set>
#include <string>
#include <string_view>

#include "base/status_macros.h"
#include "json/json_writer.h"
#include "protocol/openai/object_reader.h"
#include "protocol/openai/tools.h"

namespace inflight::openai {
namespace {

using json::Value;
using Kind = Value::Kind;
using Guided = serving::Generation::Guided;

constexpr size_t kMaxCalls = 64;  // of one answer
// Of a function that says nothing of its parameters: OpenAI's has none.
constexpr std::string_view kNoParameters =
    R"({"type":"object","properties":{},"additionalProperties":false})";

struct Choice {
  bool names_some = false;      // else all may be called
  std::set<std::string> names;  // of functions that may be called
  size_t max_calls = kMaxCalls;
};

// {"type": "function", "function": {"name": "f"}}
Result<std::string> NameOf(const std::string& field, const Value& function) {
  constexpr std::array<std::string_view, 2> kMembers = {"type", "function"};
  const auto [type, inner] = function.Pick(kMembers);
  if (!type || type->text() != "\"function\"")
    return InvalidArgument(field + ".type", "must be \"function\"");
  constexpr std::array<std::string_view, 1> kName = {"name"};
  const auto [name] = inner ? inner->Pick(kName) : std::array<std::optional<Value>, 1>();
  if (!name || name->kind() != Kind::kString)
    return InvalidArgument(field + ".function.name", "must be a string");
  return name->AsString();
}

// {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [...]}}
Status ReadAllowed(const Value& allowed, Choice& choice) {
  const std::string field = "tool_choice.allowed_tools";
  constexpr std::array<std::string_view, 2> kMembers = {"mode", "tools"};
  const auto [mode, tools] = allowed.Pick(kMembers);
  if (!mode || mode->text() != "\"required\"")
    return Unimplemented(field + ".mode",
                         "is not supported but for \"required\": leave out of tools what the model "
                         "may not call");
  if (!tools || tools->kind() != Kind::kArray)
    return InvalidArgument(field + ".tools", "must be an array of functions");
  choice.names_some = true;
  size_t index = 0;
  return tools->ForEachElement([&](const Value& tool) -> Status {
    const std::string where = field + ".tools[" + std::to_string(index++) + "]";
    if (index > kMaxTools)
      return InvalidArgument(field + ".tools", "got more than " + std::to_string(kMaxTools));
    ASSIGN_OR_RETURN(std::string name, NameOf(where, tool));
    choice.names.insert(std::move(name));
    return Status::Ok();
  });
}

Result<Choice> ReadChoice(const Asked& asked) {
  Choice choice;
  if (!asked.parallel_tool_calls) choice.max_calls = 1;
  const Value& value = *asked.tool_choice;
  if (value.kind() == Kind::kString) return choice;
  constexpr std::array<std::string_view, 2> kMembers = {"type", "allowed_tools"};
  const auto [type, allowed] = value.Pick(kMembers);
  if (type && type->text() == "\"allowed_tools\"") {
    if (!allowed) return InvalidArgument("tool_choice.allowed_tools", "is missing");
    RETURN_IF_ERROR(ReadAllowed(*allowed, choice));
    return choice;
  }
  ASSIGN_OR_RETURN(std::string name, NameOf("tool_choice", value));
  choice.names_some = true;
  choice.names.insert(std::move(name));
  choice.max_calls = 1;
  return choice;
}

// A function's call as the format writes it, around its arguments.
void WriteTag(const answer_parts::WrittenCalls& written, std::string_view name,
              std::string_view schema, json::Writer& writer) {
  writer.BeginObject();
  writer.Key("begin").String(
      std::string(written.before_name).append(name).append(written.behind_name));
  writer.Key("schema").Raw(schema);
  writer.Key("end").String(written.behind_arguments);
  writer.EndObject();
}

}  // namespace

bool ForcesCalls(const Asked& asked) {
  if (!asked.tool_choice) return false;
  const Value& choice = *asked.tool_choice;
  return choice.text() == "\"required\"" || choice.kind() == Kind::kObject;
}

Result<std::optional<Guided>> ReadForcedCalls(const Asked& asked,
                                              const answer_parts::AnswerFormat& format) {
  if (!ForcesCalls(asked)) return std::optional<Guided>();
  if (format.calls == nullptr)
    return InvalidArgument("tool_choice", "needs tools that the model may call");
  const answer_parts::WrittenCalls& written = format.calls->written;
  if (written.before_name.empty())
    return Unimplemented("tool_choice",
                         "is not supported but for auto and none by a model of the "
                         "format " +
                             std::string(format.calls->name));
  ASSIGN_OR_RETURN(const Choice choice, ReadChoice(asked));
  Guided guided{.spec = {.kind = GuideSpec::Kind::kTagged}, .field = "tool_choice"};
  json::Writer writer(guided.spec.text);
  writer.BeginObject().Key("tags").BeginArray();
  std::set<std::string> found;
  RETURN_IF_ERROR(asked.tools->ForEachElement([&](const Value& tool) -> Status {
    constexpr std::array<std::string_view, 1> kFunction = {"function"};
    constexpr std::array<std::string_view, 2> kMembers = {"name", "parameters"};
    const auto [function] = tool.Pick(kFunction);
    const auto [name, parameters] = function->Pick(kMembers);
    ASSIGN_OR_RETURN(std::string text, name->AsString());
    if (choice.names_some && !choice.names.contains(text)) return Status::Ok();
    const bool has_schema = parameters && parameters->kind() == Kind::kObject;
    WriteTag(written, text, has_schema ? parameters->text() : kNoParameters, writer);
    found.insert(std::move(text));
    return Status::Ok();
  }));
  for (const std::string& name : choice.names)
    if (!found.contains(name))
      return InvalidArgument("tool_choice",
                             "names '" + Shortened(name) + "', which is none of tools");
  writer.EndArray();
  writer.Key("between").String(written.between);
  writer.Key("min").Int(1).Key("max").Int(static_cast<int64_t>(choice.max_calls));
  writer.EndObject();
  return std::optional(std::move(guided));
}

}  // namespace inflight::openai
