// SPDX-License-Identifier: Apache-2.0
#include "protocol/anthropic/conversation.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "json/json_writer.h"
#include "protocol/openai/chat_document.h"
#include "protocol/openai/object_reader.h"

namespace inflight::anthropic {
namespace {

using json::Value;
using openai::Asked;
using openai::At;
using openai::ChatTurn;
using openai::MembersOf;
using openai::Shortened;
using openai::TextAt;
using openai::TypeAt;
using Kind = Value::Kind;

// clang-format off
constexpr openai::FieldName kFieldNames[] = {
    {".function.parameters", ".input_schema"},
    {".function", ""},
    {"reasoning_effort", "output_config.effort"},
    {"response_format.json_schema", "output_config.format"},
    {"response_format", "output_config.format"},
    {"messages[", "messages", /*ends=*/true},  // of the document: its messages are more
};
// clang-format on

// Of a text block.
Result<std::string> LineOf(const std::string& where, const Value& block) {
  ASSIGN_OR_RETURN(
      const auto members,
      MembersOf<4>(block, where, "a text block", {"type", "text", "cache_control", "citations"}));
  const auto& [type, line, cache_control, citations] = members;
  if (cache_control)
    RETURN_IF_ERROR(openai::CheckCacheControl(where + ".cache_control", *cache_control));
  if (citations && citations->text() != "[]")
    return Unimplemented(where + ".citations", "is not supported; leave it out");
  return TextAt(where + ".text", line);
}

// Of a block where text alone may stand.
Result<std::string> LineAlone(const std::string& where, const Value& block) {
  ASSIGN_OR_RETURN(const std::string type, TypeAt(where, block));
  if (type == "text") return LineOf(where, block);
  return Unimplemented(where + ".type",
                       "got '" + Shortened(type) + "': this model takes text alone here");
}

Result<std::string> ReadText(const std::string& where, const Value& value) {
  return openai::TextOrLines(where, value, "blocks", LineAlone);
}

// Messages of one role behind each other are one turn, as this API has it.
class MessagesReader {
 public:
  explicit MessagesReader(json::Writer& out) : out_(out) {}

  bool is_continued() const { return is_continued_; }  // the last message is the assistant's

  Status Read(const Asked& asked) {
    if (!asked.messages) return InvalidArgument("messages", "is missing");
    out_.BeginArray();
    if (asked.system) {
      ASSIGN_OR_RETURN(std::string system, ReadText("system", *asked.system));
      openai::AppendTurn({.role = "system", .content = std::move(system)}, out_);
    }
    size_t index = 0;
    RETURN_IF_ERROR(asked.messages->ForEachElement(
        [&](const Value& message) { return ReadMessage(At("messages", index++), message); }));
    if (index == 0) return InvalidArgument("messages", "is empty; at least one is needed");
    is_continued_ = role_ == "assistant";
    EndTurn();
    out_.EndArray();
    return Status::Ok();
  }

 private:
  Status ReadMessage(const std::string& where, const Value& message) {
    ASSIGN_OR_RETURN(const auto members,
                     MembersOf<2>(message, where, "a message", {"role", "content"}));
    ASSIGN_OR_RETURN(const std::string role, TextAt(where + ".role", members[0]));
    constexpr std::array<std::string_view, 3> kRoles = {"user", "assistant", "system"};
    const auto* const known = std::ranges::find(kRoles, role);
    if (known == kRoles.end())
      return InvalidArgument(where + ".role",
                             "got '" + Shortened(role) + "', must be user, assistant or system");
    if (role_ != *known) EndTurn();
    role_ = *known;
    if (!members[1]) return InvalidArgument(where + ".content", "is missing");
    const Value& content = *members[1];
    if (content.kind() == Kind::kString) {
      ASSIGN_OR_RETURN(const std::string text, content.AsString());
      AddLine(text);
      return Status::Ok();
    }
    if (content.kind() != Kind::kArray)
      return InvalidArgument(where + ".content", "must be a string or an array of blocks");
    size_t index = 0;
    RETURN_IF_ERROR(content.ForEachElement(
        [&](const Value& block) { return ReadBlock(At(where + ".content", index++), block); }));
    if (index == 0) return InvalidArgument(where + ".content", "is empty");
    return Status::Ok();
  }

  ChatTurn& Turn() {
    if (!turn_) turn_.emplace(ChatTurn{.role = role_, .content = {}});
    return *turn_;
  }
  void AddLine(std::string_view text) {
    std::string& content = Turn().content;
    if (!content.empty()) content += '\n';
    content += text;
  }
  void EndTurn() {
    if (turn_) openai::AppendTurn(*turn_, out_);
    turn_.reset();
  }

  Status ReadBlock(const std::string& where, const Value& block) {
    ASSIGN_OR_RETURN(const std::string type, TypeAt(where, block));
    if (type == "text") {
      ASSIGN_OR_RETURN(const std::string line, LineOf(where, block));
      AddLine(line);
      return Status::Ok();
    }
    const bool is_known = type == "tool_use" || type == "thinking" || type == "tool_result";
    if (!is_known)
      return Unimplemented(where + ".type", "got '" + Shortened(type) +
                                                "': this model takes text, thinking, tool_use and "
                                                "tool_result alone");
    const std::string_view role = type == "tool_result" ? "user" : "assistant";
    if (role_ != role)
      return InvalidArgument(where + ".type", "got '" + type + "', which is of the role " +
                                                  std::string(role) + " alone");
    if (type == "tool_use") return ReadCall(where, block);
    return type == "thinking" ? ReadThinkingBlock(where, block) : ReadResult(where, block);
  }

  Status ReadThinkingBlock(const std::string& where, const Value& block) {
    ASSIGN_OR_RETURN(const auto members, MembersOf<3>(block, where, "a thinking block",
                                                      {"type", "thinking", "signature"}));
    ASSIGN_OR_RETURN(const std::string text, TextAt(where + ".thinking", members[1]));
    Turn().reasoning += text;
    return Status::Ok();
  }

  Status ReadCall(const std::string& where, const Value& block) {
    ASSIGN_OR_RETURN(const auto members,
                     MembersOf<6>(block, where, "a tool_use block",
                                  {"type", "id", "name", "input", "cache_control", "caller"}));
    const auto& [type, id, name, input, cache_control, caller] = members;
    if (cache_control)
      RETURN_IF_ERROR(openai::CheckCacheControl(where + ".cache_control", *cache_control));
    openai::ChatCall& call = Turn().calls.emplace_back();
    ASSIGN_OR_RETURN(call.id, TextAt(where + ".id", id));
    ASSIGN_OR_RETURN(call.name, TextAt(where + ".name", name));
    if (!input || input->kind() != Kind::kObject)
      return InvalidArgument(where + ".input", "must be an object");
    if (caller) RETURN_IF_ERROR(CheckCaller(where + ".caller", *caller));
    call.arguments = input->text();
    return Status::Ok();
  }

  // The model itself, as answers of newer clients say of it.
  static Status CheckCaller(const std::string& where, const Value& caller) {
    ASSIGN_OR_RETURN(const std::string type, TypeAt(where, caller));
    if (type == "direct") return Status::Ok();
    return Unimplemented(where + ".type", "got '" + Shortened(type) + "', direct is supported");
  }

  Status ReadResult(const std::string& where, const Value& block) {
    ASSIGN_OR_RETURN(const auto members,
                     MembersOf<5>(block, where, "a tool_result block",
                                  {"type", "tool_use_id", "content", "is_error", "cache_control"}));
    const auto& [type, id, content, is_error, cache_control] = members;
    if (cache_control)
      RETURN_IF_ERROR(openai::CheckCacheControl(where + ".cache_control", *cache_control));
    if (is_error && is_error->kind() != Kind::kBool)
      return InvalidArgument(where + ".is_error", "must be true or false");
    ChatTurn result{.role = "tool", .content = {}};
    ASSIGN_OR_RETURN(result.tool_call_id, TextAt(where + ".tool_use_id", id));
    if (content) {
      ASSIGN_OR_RETURN(result.content, ReadText(where + ".content", *content));
    }
    // Templates know no failed results: the text says it.
    if (is_error && is_error->text() == "true") result.content.insert(0, "Error: ");
    EndTurn();  // of text before it
    openai::AppendTurn(result, out_);
    return Status::Ok();
  }

  json::Writer& out_;
  bool is_continued_ = false;
  std::string_view role_;         // of the last message
  std::optional<ChatTurn> turn_;  // that goes on
};

// What says of a tool when the model sees it, and who calls it: it is seen at once, and by the
// model.
Status CheckToolUse(const std::string& where, const std::optional<Value>& deferred,
                    const std::optional<Value>& callers, const std::optional<Value>& examples) {
  if (deferred && deferred->text() != "false")
    return Unimplemented(where + ".defer_loading",
                         "is not supported: the model sees all tools; leave it out");
  const auto num_examples = examples ? examples->NumElements() : Result<size_t>(size_t{0});
  if (!num_examples.ok() || *num_examples > 0)
    return Unimplemented(where + ".input_examples",
                         "is not supported: put them into the description");
  if (!callers) return Status::Ok();
  if (callers->kind() != Kind::kArray)
    return InvalidArgument(where + ".allowed_callers", "must be an array");
  return callers->ForEachElement([&](const Value& caller) {
    if (caller.text() == "\"direct\"") return Status::Ok();
    return Unimplemented(where + ".allowed_callers",
                         "is not supported but for \"direct\": this server runs no tools");
  });
}

Status WriteTool(const std::string& where, const Value& tool, json::Writer& out) {
  constexpr std::array<std::string_view, 2> kKind = {"type", "name"};
  if (tool.kind() != Kind::kObject) return InvalidArgument(where, "must be an object");
  const auto [type, any_name] = tool.Pick(kKind);
  if (type && type->kind() != Kind::kNull && type->text() != "\"custom\"")
    return Unimplemented(where + ".type",
                         "got " + Shortened(type->text()) +
                             ": this server runs no tools; those of the client are \"custom\"");
  ASSIGN_OR_RETURN(const auto members,
                   MembersOf<10>(tool, where, "a tool",
                                 {"type", "name", "description", "input_schema", "strict",
                                  "cache_control", "eager_input_streaming", "defer_loading",
                                  "allowed_callers", "input_examples"}));
  const auto& [kind, name, description, schema, strict, cache_control, eager, deferred, callers,
               examples] = members;
  RETURN_IF_ERROR(CheckToolUse(where, deferred, callers, examples));
  if (cache_control)
    RETURN_IF_ERROR(openai::CheckCacheControl(where + ".cache_control", *cache_control));
  if (eager && eager->kind() != Kind::kBool)
    return InvalidArgument(where + ".eager_input_streaming", "must be true or false");
  if (!name) return InvalidArgument(where + ".name", "is missing");
  if (!schema) return InvalidArgument(where + ".input_schema", "is missing");
  out.BeginObject().Key("type").String("function").Key("function").BeginObject();
  out.Key("name").Raw(name->text());
  if (description) out.Key("description").Raw(description->text());
  out.Key("parameters").Raw(schema->text());
  if (strict) out.Key("strict").Raw(strict->text());
  out.EndObject().EndObject();
  return Status::Ok();
}

Status WriteTools(const Value& tools, json::Writer& out) {
  out.BeginArray();
  size_t index = 0;
  RETURN_IF_ERROR(tools.ForEachElement(
      [&](const Value& tool) { return WriteTool(At("tools", index++), tool, out); }));
  out.EndArray();
  return Status::Ok();
}

Status WriteChoice(const Value& choice, Asked& asked, json::Writer& out) {
  ASSIGN_OR_RETURN(const auto members, MembersOf<3>(choice, "tool_choice", "a choice of tools",
                                                    {"type", "name", "disable_parallel_tool_use"}));
  const auto& [kind, name, one_call] = members;
  ASSIGN_OR_RETURN(const std::string type, TextAt("tool_choice.type", kind));
  if (one_call && one_call->kind() != Kind::kBool)
    return InvalidArgument("tool_choice.disable_parallel_tool_use", "must be true or false");
  if (one_call) asked.parallel_tool_calls = one_call->text() == "false";
  if (name && type != "tool")
    return InvalidArgument("tool_choice.name", "is of the type tool alone; leave it out");
  if (type == "auto" || type == "none") {
    out.String(type);
  } else if (type == "any") {
    out.String("required");
  } else if (type == "tool") {
    ASSIGN_OR_RETURN(const std::string tool, TextAt("tool_choice.name", name));
    openai::AppendNamedChoice(tool, out);
  } else {
    return InvalidArgument("tool_choice.type",
                           "got '" + Shortened(type) + "', must be auto, any, tool or none");
  }
  return Status::Ok();
}

Status ReadBudget(std::string_view type, const std::optional<Value>& budget, Asked& asked) {
  const std::string where = "thinking.budget_tokens";
  if (type != "enabled") {
    if (!budget) return Status::Ok();
    return InvalidArgument(where, "is of the type enabled alone; leave it out");
  }
  if (!budget) return InvalidArgument(where, "is missing");
  const auto tokens = budget->AsInt();
  const int64_t most = asked.max_tokens.value_or(std::numeric_limits<int>::max());
  if (!budget->IsInteger() || !tokens.ok() || *tokens < 1 || *tokens >= most)
    return InvalidArgument(
        where, "got " + Shortened(budget->text()) + ", must be at least 1 and below max_tokens");
  asked.thinking_budget = static_cast<int>(*tokens);
  return Status::Ok();
}

Status ReadThinking(const Value& thinking, Asked& asked) {
  ASSIGN_OR_RETURN(const auto members, MembersOf<3>(thinking, "thinking", "how the model thinks",
                                                    {"type", "budget_tokens", "display"}));
  ASSIGN_OR_RETURN(const std::string type, TextAt("thinking.type", members[0]));
  if (members[2] && members[2]->text() != "\"summarized\"")
    return Unimplemented("thinking.display",
                         "is not supported: all that the model thinks is told; leave it out");
  if (type != "adaptive" && type != "enabled" && type != "disabled")
    return InvalidArgument("thinking.type",
                           "got '" + Shortened(type) + "', must be adaptive, enabled or disabled");
  asked.reasons = type != "disabled";
  return ReadBudget(type, members[1], asked);
}

Status ReadOutputConfig(const Value& config, Asked& asked, json::Writer& out) {
  ASSIGN_OR_RETURN(
      const auto members,
      MembersOf<2>(config, "output_config", "how answers are written", {"effort", "format"}));
  if (members[0]) {
    ASSIGN_OR_RETURN(asked.reasoning_effort, TextAt("output_config.effort", members[0]));
    RETURN_IF_ERROR(openai::CheckEffort("output_config.effort", asked.reasoning_effort));
  }
  if (!members[1]) return Status::Ok();
  const std::string where = "output_config.format";
  ASSIGN_OR_RETURN(const auto of_format,
                   MembersOf<2>(*members[1], where, "a format of answers", {"type", "schema"}));
  ASSIGN_OR_RETURN(const std::string type, TextAt(where + ".type", of_format[0]));
  if (type != "json_schema")
    return InvalidArgument(where + ".type", "got '" + Shortened(type) + "', must be json_schema");
  if (!of_format[1]) return InvalidArgument(where + ".schema", "is missing");
  openai::AppendSchemaFormat(*of_format[1], {}, out);
  return Status::Ok();
}

}  // namespace

Result<std::string> ToChat(Asked& asked) {
  std::string document;
  json::Writer out(document);
  out.BeginObject().Key("messages");
  MessagesReader messages(out);
  RETURN_IF_ERROR(messages.Read(asked));
  asked.continues = messages.is_continued();
  if (asked.tools) {
    out.Key("tools");
    RETURN_IF_ERROR(WriteTools(*asked.tools, out));
  }
  if (asked.tool_choice) {
    out.Key("tool_choice");
    RETURN_IF_ERROR(WriteChoice(*asked.tool_choice, asked, out));
  }
  if (asked.thinking) RETURN_IF_ERROR(ReadThinking(*asked.thinking, asked));
  if (asked.output_config) RETURN_IF_ERROR(ReadOutputConfig(*asked.output_config, asked, out));
  if (asked.chat_template_kwargs)
    out.Key("chat_template_kwargs").Raw(asked.chat_template_kwargs->text());
  out.EndObject();
  return document;
}

std::span<const openai::FieldName> FieldNames() { return kFieldNames; }

}  // namespace inflight::anthropic
