// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/guided_calls.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "answer_parts/call_guide.h"
#include "base/status_macros.h"
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

// A tool as its request has it.
struct Tool {
  std::string name;
  std::string_view schema;  // of its parameters
  bool is_strict = false;
};

Result<std::vector<Tool>> ToolsOf(const Value& tools) {
  std::vector<Tool> read;
  RETURN_IF_ERROR(tools.ForEachElement([&](const Value& tool) -> Status {
    constexpr std::array<std::string_view, 1> kFunction = {"function"};
    constexpr std::array<std::string_view, 3> kMembers = {"name", "parameters", "strict"};
    const auto [function] = tool.Pick(kFunction);
    const auto [name, parameters, strict] = function->Pick(kMembers);
    const bool has_schema = parameters && parameters->kind() == Kind::kObject;
    ASSIGN_OR_RETURN(std::string text, name->AsString());
    read.push_back({.name = std::move(text),
                    .schema = has_schema ? parameters->text() : kNoParameters,
                    .is_strict = strict && strict->text() == "true"});
    return Status::Ok();
  }));
  return read;
}

// Of those that may be called where calls must be made.
Status CheckNames(const Choice& choice, const std::vector<Tool>& tools) {
  std::set<std::string_view> known;
  for (const Tool& tool : tools) known.insert(tool.name);
  for (const std::string& name : choice.names)
    if (!known.contains(name))
      return InvalidArgument("tool_choice",
                             "names '" + Shortened(name) + "', which is none of tools");
  return Status::Ok();
}

}  // namespace

bool ForcesCalls(const Asked& asked) {
  if (!asked.tool_choice) return false;
  const Value& choice = *asked.tool_choice;
  return choice.text() == "\"required\"" || choice.kind() == Kind::kObject;
}

Result<std::optional<Guided>> ReadGuidedCalls(const Asked& asked,
                                              const answer_parts::AnswerFormat& format,
                                              const GuideSpec* answer) {
  const bool must_call = ForcesCalls(asked);
  if (format.calls == nullptr || !ShowsTools(asked)) {  // a model in channels has calls anyway
    if (!must_call) return std::optional<Guided>();
    return InvalidArgument("tool_choice", "needs tools that the model may call");
  }
  ASSIGN_OR_RETURN(const std::vector<Tool> tools, ToolsOf(*asked.tools));
  Choice choice{.max_calls = asked.parallel_tool_calls ? kMaxCalls : 1};
  if (must_call) {
    ASSIGN_OR_RETURN(choice, ReadChoice(asked));
    RETURN_IF_ERROR(CheckNames(choice, tools));
  } else if (answer == nullptr && std::ranges::none_of(tools, &Tool::is_strict)) {
    return std::optional<Guided>();
  }
  const bool must_fit = must_call || answer != nullptr;
  std::vector<answer_parts::GuidedFunction> functions;
  for (const Tool& tool : tools) {
    if (choice.names_some && !choice.names.contains(tool.name)) continue;
    const auto texts = format.names->find(tool.name);
    functions.push_back({.name = tool.name,
                         .schema = must_fit || tool.is_strict ? tool.schema : "",
                         .texts = texts == format.names->end() ? nullptr : &texts->second});
  }
  ASSIGN_OR_RETURN(std::string text,
                   answer_parts::CallGuideText(
                       *format.calls, functions,
                       {.must_call = must_fit, .max_calls = choice.max_calls, .answer = answer}));
  return std::optional(Guided{
      .spec = {.kind = GuideSpec::Kind::kTagged, .text = std::move(text)},
      .field = must_call ? "tool_choice" : "tools",
  });
}

}  // namespace inflight::openai
