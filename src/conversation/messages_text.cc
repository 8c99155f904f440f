// SPDX-License-Identifier: Apache-2.0
#include "conversation/messages_text.h"

#include <array>
#include <optional>
#include <string>

#include "base/status_macros.h"
#include "json/valid_text.h"

namespace inflight::conversation {
namespace {

using json::Value;
using Kind = Value::Kind;

constexpr size_t kMaxNameBytes = 64;  // of a client's text in an error

Status CheckKind(std::string_view name, const Value& value, Kind kind, std::string_view wanted) {
  if (value.kind() == kind) return Status::Ok();
  return InvalidArgument(name, "must be " + std::string(wanted));
}

Result<bool> BoolOf(std::string_view name, const Value& value) {
  RETURN_IF_ERROR(CheckKind(name, value, Kind::kBool, "true or false"));
  return value.AsBool();
}

// What a template looks for in a tool, and nothing that would have no effect.
Status CheckTool(const std::string& where, const Value& tool) {
  RETURN_IF_ERROR(CheckKind(where, tool, Kind::kObject, "an object"));
  constexpr std::array<std::string_view, 2> kTool = {"type", "function"};
  const auto [type, function] = tool.Pick(kTool);
  if (!type || type->text() != "\"function\"")
    return InvalidArgument(where + ".type", "must be \"function\"");
  if (!function) return InvalidArgument(where + ".function", "is missing");
  RETURN_IF_ERROR(CheckKind(where + ".function", *function, Kind::kObject, "an object"));
  constexpr std::array<std::string_view, 2> kFunction = {"name", "strict"};
  const auto [name, strict] = function->Pick(kFunction);
  if (!name) return InvalidArgument(where + ".function.name", "is missing");
  RETURN_IF_ERROR(CheckKind(where + ".function.name", *name, Kind::kString, "a string"));
  if (strict && strict->text() == "true")
    return Unimplemented(where + ".function.strict",
                         "is not supported here; use guided_decoding_guide, or "
                         "/v1/chat/completions with tool_choice required");
  return Status::Ok();
}

// Unset: there are none.
Result<std::optional<Value>> ToolsOf(const Value& tools, const ChatTemplate& chat_template) {
  RETURN_IF_ERROR(CheckKind("tools", tools, Kind::kArray, "a list of tools"));
  size_t count = 0;
  RETURN_IF_ERROR(tools.ForEachElement([&](const Value& tool) {
    return CheckTool("tools[" + std::to_string(count++) + "]", tool);
  }));
  if (count == 0) return std::optional<Value>();
  if (!KnowsWord(chat_template.source(), "tools"))
    return InvalidArgument("tools",
                           "this model's chat template shows it no tools; leave them out, or "
                           "start the server with --chat-template FILE");
  return std::optional(tools);
}

class ObjectReader {
 public:
  explicit ObjectReader(const ChatTemplate& chat_template) : chat_template_(chat_template) {}

  Result<Said> Read(const Value& root) {
    if (root.kind() == Kind::kArray) return Said{.messages = root};
    if (root.kind() != Kind::kObject)
      return InvalidArgument("messages",
                             "must be a JSON list of messages, or an object that has it");
    RETURN_IF_ERROR(root.ForEachMember(
        [this](std::string_view name, const Value& value) { return ReadMember(name, value); }));
    if (!messages_) return InvalidArgument("messages", "is missing in the object");
    return Said{.messages = *messages_,
                .tools = tools_,
                .chat_template_kwargs = variables_,
                .add_generation_prompt = add_generation_prompt_,
                .continues = continues_};
  }

 private:
  Status ReadMember(std::string_view name, const Value& value) {
    if (value.kind() == Kind::kNull) return Status::Ok();  // as if not there
    if (name == "messages") {
      RETURN_IF_ERROR(CheckKind(name, value, Kind::kArray, "a list of messages"));
      if (messages_) return InvalidArgument(name, "is given twice");
      messages_ = value;
    } else if (name == "tools") {
      if (tools_) return InvalidArgument(name, "is given twice");
      ASSIGN_OR_RETURN(tools_, ToolsOf(value, chat_template_));
    } else if (name == "chat_template_kwargs") {
      RETURN_IF_ERROR(CheckKind(name, value, Kind::kObject, "an object"));
      if (variables_) return InvalidArgument(name, "is given twice");
      variables_ = value;
    } else if (name == "add_generation_prompt") {
      ASSIGN_OR_RETURN(add_generation_prompt_, BoolOf(name, value));
    } else if (name == "continue_final_message") {
      ASSIGN_OR_RETURN(continues_, BoolOf(name, value));
    } else {
      return InvalidArgument("messages." + json::ValidText(name.substr(0, kMaxNameBytes)),
                             "is not a member of a conversation; those are messages, tools, "
                             "chat_template_kwargs, add_generation_prompt and "
                             "continue_final_message");
    }
    return Status::Ok();
  }

  const ChatTemplate& chat_template_;
  std::optional<Value> messages_, tools_, variables_;
  bool add_generation_prompt_ = true;
  bool continues_ = false;
};

}  // namespace

Result<Prompt> PromptOf(std::string_view text, const Tokenizer& tokenizer,
                        const ChatTemplate& chat_template) {
  if (json::ValidText(text) != text) return InvalidArgument("messages", "is not UTF-8");
  const auto root = Value::Parse(text);
  if (!root.ok()) return InvalidArgument("messages", "is no JSON: " + root.status().message());
  ASSIGN_OR_RETURN(const Said said, ObjectReader(chat_template).Read(*root));
  ASSIGN_OR_RETURN(const Conversation read,
                   conversation::Read(said, {}, text, tokenizer, chat_template));
  return Render(chat_template, read);
}

}  // namespace inflight::conversation
