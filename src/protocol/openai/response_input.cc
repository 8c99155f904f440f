// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/response_input.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "json/json_writer.h"
#include "protocol/openai/chat_document.h"
#include "protocol/openai/new_id.h"
#include "protocol/openai/object_reader.h"

namespace inflight::openai {
namespace {

using json::Value;
using Kind = Value::Kind;

// clang-format off
constexpr FieldName kResponseFieldNames[] = {
    {".function", ""},
    {"messages", "input", /*ends=*/true},  // of the document: its messages are others
    {"max_tokens", "max_output_tokens"},
    {"reasoning_effort", "reasoning.effort"},
    {"response_format.json_schema", "text.format"},
    {"response_format", "text.format"},
};
// clang-format on

// The items of an input, in turn, as messages: what the assistant reasons, says and calls in one
// turn is one message.
class ItemReader {
 public:
  // `out`: its messages; `items`: its items, as they are told.
  ItemReader(json::Writer& out, json::Writer& items) : out_(out), items_(items) {}

  Status Read(const Value& input) {
    if (input.kind() == Kind::kString) {
      ASSIGN_OR_RETURN(std::string text, input.AsString());
      TellMessage("user", input, NewId("msg_"));
      AppendTurn({.role = "user", .content = std::move(text)}, out_);
      return Status::Ok();
    }
    size_t index = 0;
    RETURN_IF_ERROR(input.ForEachElement(
        [&](const Value& item) { return ReadItem(At("input", index++), item); }));
    EndTurn();
    return Status::Ok();
  }

 private:
  Status ReadItem(const std::string& where, const Value& item) {
    if (item.kind() != Kind::kObject) return InvalidArgument(where, "must be an object");
    constexpr std::array<std::string_view, 2> kNames = {"type", "role"};
    const auto [said, role] = item.Pick(kNames);
    std::string type = "message";
    if (said || !role) {
      ASSIGN_OR_RETURN(type, TextAt(where + ".type", said));
    }
    if (type == "message") return ReadMessage(where, item);
    if (type == "reasoning") return ReadReasoning(where, item);
    if (type == "function_call") return ReadCall(where, item);
    if (type == "function_call_output") return ReadOutput(where, item);
    return Unimplemented(where + ".type", "got '" + Shortened(type) +
                                              "': items are message, reasoning, function_call and "
                                              "function_call_output alone");
  }

  Status ReadMessage(const std::string& where, const Value& item) {
    ASSIGN_OR_RETURN(const auto members,
                     MembersOf<6>(item, where, "a message",
                                  {"type", "role", "content", "id", "status", "phase"}));
    ASSIGN_OR_RETURN(const std::string role, TextAt(where + ".role", members[1]));
    constexpr std::array<std::string_view, 4> kRoles = {"user", "assistant", "system", "developer"};
    const auto* const known = std::ranges::find(kRoles, role);
    if (known == kRoles.end())
      return InvalidArgument(
          where + ".role",
          "got '" + Shortened(role) + "', must be user, assistant, system or developer");
    if (!members[2]) return InvalidArgument(where + ".content", "is missing");
    ASSIGN_OR_RETURN(std::string content, ReadText(where + ".content", *members[2]));
    ASSIGN_OR_RETURN(const std::string id, IdOf(where, members[3], "msg_"));
    TellMessage(role, *members[2], id);
    if (role == "assistant") {
      if (turn_ && (has_content_ || !turn_->calls.empty())) EndTurn();
      has_content_ = true;
      Turn().content = std::move(content);
      return Status::Ok();
    }
    EndTurn();
    AppendTurn({.role = *known, .content = std::move(content)}, out_);
    return Status::Ok();
  }

  // That an item has, else a new one.
  static Result<std::string> IdOf(const std::string& where, const std::optional<Value>& id,
                                  std::string_view prefix) {
    if (!id) return NewId(prefix);
    return TextAt(where + ".id", id);
  }

  void BeginItem(std::string_view type, const std::string& id) {
    items_.BeginObject().Key("id").String(id).Key("type").String(type);
    items_.Key("status").String("completed");
  }

  // `content`: a text, which becomes a part, or parts.
  void TellMessage(std::string_view role, const Value& content, const std::string& id) {
    BeginItem("message", id);
    items_.Key("role").String(role).Key("content");
    if (content.kind() == Kind::kArray) {
      items_.Raw(content.text()).EndObject();
      return;
    }
    items_.BeginArray().BeginObject().Key("type");
    items_.String(role == "assistant" ? "output_text" : "input_text");
    items_.Key("text").Raw(content.text());
    if (role == "assistant") items_.Key("annotations").BeginArray().EndArray();
    items_.EndObject().EndArray().EndObject();
  }

  static Result<std::string> LineOf(const std::string& where, const Value& part) {
    ASSIGN_OR_RETURN(const std::string type, TypeAt(where, part));
    if (type != "input_text" && type != "output_text")
      return Unimplemented(where + ".type",
                           "got '" + Shortened(type) + "': this model takes text alone");
    ASSIGN_OR_RETURN(const auto members, MembersOf<4>(part, where, "a text part",
                                                      {"type", "text", "annotations", "logprobs"}));
    return TextAt(where + ".text", members[1]);
  }
  static Result<std::string> ReadText(const std::string& where, const Value& value) {
    return TextOrLines(where, value, "parts", LineOf);
  }

  Status ReadReasoning(const std::string& where, const Value& item) {
    ASSIGN_OR_RETURN(const auto members, MembersOf<6>(item, where, "a reasoning item",
                                                      {"type", "id", "summary", "content",
                                                       "encrypted_content", "status"}));
    if (members[4])
      return Unimplemented(where + ".encrypted_content",
                           "is not supported: reasoning is told as it is, in content");
    ASSIGN_OR_RETURN(const std::string id, IdOf(where, members[1], "rs_"));
    BeginItem("reasoning", id);
    items_.Key("summary").Raw(members[2] ? members[2]->text() : "[]");
    if (members[3]) items_.Key("content").Raw(members[3]->text());
    items_.EndObject();
    EndTurn();
    std::string& reasoning = Turn().reasoning;
    for (const size_t place : {size_t{2}, size_t{3}}) {
      if (!members[place]) continue;
      const std::string name = where + (place == 2 ? ".summary" : ".content");
      if (members[place]->kind() != Kind::kArray) return InvalidArgument(name, "must be an array");
      if (place == 3) reasoning.clear();  // the whole, of which the other is a summary
      size_t index = 0;
      RETURN_IF_ERROR(members[place]->ForEachElement([&](const Value& part) -> Status {
        const std::string one = At(name, index++);
        ASSIGN_OR_RETURN(const auto of_part,
                         MembersOf<2>(part, one, "a part of reasoning", {"type", "text"}));
        ASSIGN_OR_RETURN(const std::string text, TextAt(one + ".text", of_part[1]));
        reasoning += text;
        return Status::Ok();
      }));
    }
    return Status::Ok();
  }

  Status ReadCall(const std::string& where, const Value& item) {
    ASSIGN_OR_RETURN(const auto members,
                     MembersOf<6>(item, where, "a call",
                                  {"type", "call_id", "name", "arguments", "id", "status"}));
    ChatCall& call = Turn().calls.emplace_back();
    ASSIGN_OR_RETURN(call.id, TextAt(where + ".call_id", members[1]));
    ASSIGN_OR_RETURN(call.name, TextAt(where + ".name", members[2]));
    ASSIGN_OR_RETURN(call.arguments, TextAt(where + ".arguments", members[3]));
    const std::string_view arguments = call.arguments;
    const auto object = Value::Parse(arguments.empty() ? "{}" : arguments);
    if (!object.ok() || object->kind() != Kind::kObject)
      return InvalidArgument(where + ".arguments", "must be the text of a JSON object");
    ASSIGN_OR_RETURN(const std::string id, IdOf(where, members[4], "fc_"));
    BeginItem("function_call", id);
    items_.Key("call_id").String(call.id).Key("name").String(call.name);
    items_.Key("arguments").String(call.arguments).EndObject();
    return Status::Ok();
  }

  Status ReadOutput(const std::string& where, const Value& item) {
    ASSIGN_OR_RETURN(const auto members,
                     MembersOf<6>(item, where, "what a call gave",
                                  {"type", "call_id", "output", "id", "status", "name"}));
    EndTurn();
    ChatTurn turn{.role = "tool", .content = {}};
    ASSIGN_OR_RETURN(turn.tool_call_id, TextAt(where + ".call_id", members[1]));
    if (!members[2]) return InvalidArgument(where + ".output", "is missing");
    ASSIGN_OR_RETURN(turn.content, ReadText(where + ".output", *members[2]));
    ASSIGN_OR_RETURN(const std::string id, IdOf(where, members[3], "fco_"));
    BeginItem("function_call_output", id);
    items_.Key("call_id").String(turn.tool_call_id).Key("output").Raw(members[2]->text());
    items_.EndObject();
    AppendTurn(turn, out_);
    return Status::Ok();
  }

  ChatTurn& Turn() {
    if (!turn_) turn_.emplace(ChatTurn{.role = "assistant", .content = {}});
    return *turn_;
  }

  void EndTurn() {
    if (turn_) AppendTurn(*turn_, out_);
    turn_.reset();
    has_content_ = false;
  }

  json::Writer& out_;
  json::Writer& items_;
  std::optional<ChatTurn> turn_;  // of the assistant, which goes on
  bool has_content_ = false;      // that it said something, even if it is empty
};

Status WriteTool(const std::string& where, const Value& tool, json::Writer& out) {
  ASSIGN_OR_RETURN(const std::string type, TypeAt(where, tool));
  if (type != "function")
    return Unimplemented(where + ".type", "got '" + Shortened(type) +
                                              "': this server runs no tools; those of the client "
                                              "are functions");
  out.BeginObject().Key("type").String("function").Key("function").BeginObject();
  RETURN_IF_ERROR(tool.ForEachMember([&](std::string_view key, const Value& value) -> Status {
    if (key != "type" && value.kind() != Kind::kNull) out.Key(key).Raw(value.text());
    return Status::Ok();
  }));
  out.EndObject().EndObject();
  return Status::Ok();
}

Status WriteChoice(const Value& choice, json::Writer& out) {
  if (choice.kind() == Kind::kString) {
    out.Raw(choice.text());
    return Status::Ok();
  }
  ASSIGN_OR_RETURN(const std::string type, TypeAt("tool_choice", choice));
  if (type != "function")
    return Unimplemented("tool_choice.type",
                         "got '" + Shortened(type) + "': only a function may be named");
  ASSIGN_OR_RETURN(const auto members,
                   MembersOf<2>(choice, "tool_choice", "a choice of tools", {"type", "name"}));
  ASSIGN_OR_RETURN(const std::string name, TextAt("tool_choice.name", members[1]));
  AppendNamedChoice(name, out);
  return Status::Ok();
}

Status ReadInclude(Asked& asked) {
  constexpr std::string_view kLogProbs = "\"message.output_text.logprobs\"";
  size_t index = 0;
  if (asked.include)
    RETURN_IF_ERROR(asked.include->ForEachElement([&](const Value& name) {
      const std::string where = At("include", index++);
      asked.logprobs = name.text() == kLogProbs;
      if (asked.logprobs) return Status::Ok();
      return Unimplemented(where, "got " + Shortened(name.text()) +
                                      ", which this server does not have; it has " +
                                      std::string(kLogProbs));
    }));
  if (asked.top_logprobs > 0 && !asked.logprobs)
    return InvalidArgument("top_logprobs", "needs include: [" + std::string(kLogProbs) + "]");
  return Status::Ok();
}

Status CheckMetadata(const Asked& asked) {
  if (!asked.metadata) return Status::Ok();
  constexpr size_t kMostPairs = 16;
  constexpr size_t kMostBytes = 512;
  size_t count = 0;
  return asked.metadata->ForEachMember([&](std::string_view key, const Value& value) -> Status {
    const std::string where = "metadata." + Shortened(key);
    ASSIGN_OR_RETURN(const std::string text, TextAt(where, value));
    if (text.size() > kMostBytes || key.size() > kMostBytes)
      return InvalidArgument(where, "has more than " + std::to_string(kMostBytes) + " bytes");
    if (++count > kMostPairs)
      return InvalidArgument("metadata", "has more than " + std::to_string(kMostPairs) + " pairs");
    return Status::Ok();
  });
}

Status WriteFormat(const Asked& asked, json::Writer& out) {
  if (!asked.text) return Status::Ok();
  ASSIGN_OR_RETURN(const auto members, MembersOf<2>(*asked.text, "text", "how texts are written",
                                                    {"format", "verbosity"}));
  if (members[1] && members[1]->text() != "\"medium\"")
    return Unimplemented("text.verbosity", "is not supported; leave it out");
  if (!members[0]) return Status::Ok();
  constexpr std::array<std::string_view, 5> kNames = {"type", "schema", "name", "description",
                                                      "strict"};
  ASSIGN_OR_RETURN(const auto of_format,
                   MembersOf(*members[0], "text.format", "a format of texts", kNames));
  ASSIGN_OR_RETURN(const std::string type, TextAt("text.format.type", of_format[0]));
  if (type == "json_schema") {
    if (!of_format[1]) return InvalidArgument("text.format.schema", "is missing");
    std::vector<std::pair<std::string_view, Value>> named;
    for (size_t i = 2; i < kNames.size(); ++i)
      if (of_format[i]) named.emplace_back(kNames[i], *of_format[i]);
    AppendSchemaFormat(*of_format[1], named, out);
    return Status::Ok();
  }
  if (type == "json_object")
    out.Key("response_format").BeginObject().Key("type").String(type).EndObject();
  if (type == "text" || type == "json_object") return Status::Ok();
  return InvalidArgument("text.format.type",
                         "got '" + Shortened(type) + "', must be text, json_object or json_schema");
}

Status ReadReasoning(Asked& asked) {
  if (!asked.reasoning) return Status::Ok();
  ASSIGN_OR_RETURN(const auto members,
                   MembersOf<3>(*asked.reasoning, "reasoning", "how the model reasons",
                                {"effort", "summary", "generate_summary"}));
  for (const size_t place : {size_t{1}, size_t{2}})
    if (members[place] && members[place]->text() != "\"auto\"")
      return Unimplemented("reasoning.summary",
                           "is not supported: reasoning is told as it is; leave it out");
  if (!members[0]) return Status::Ok();
  ASSIGN_OR_RETURN(asked.reasoning_effort, TextAt("reasoning.effort", members[0]));
  return CheckEffort("reasoning.effort", asked.reasoning_effort);
}

}  // namespace

Result<ResponseInput> ReadResponseInput(Asked& asked, std::string_view before) {
  if (!asked.input) return InvalidArgument("input", "is missing");
  RETURN_IF_ERROR(ReadInclude(asked));
  RETURN_IF_ERROR(CheckMetadata(asked));
  RETURN_IF_ERROR(ReadReasoning(asked));
  ResponseInput input;
  std::string turns;
  json::Writer messages(turns);
  messages.BeginArray();
  json::Writer items(input.items);
  RETURN_IF_ERROR(ItemReader(messages, items).Read(*asked.input));
  messages.EndArray();
  input.conversation.assign(before);
  const std::string_view added = std::string_view(turns).substr(1, turns.size() - 2);
  if (!before.empty() && !added.empty()) input.conversation += ',';
  input.conversation += added;
  if (input.conversation.empty()) return InvalidArgument("input", "is empty");

  json::Writer out(input.document);
  out.BeginObject().Key("messages").BeginArray();
  if (asked.instructions) {
    ASSIGN_OR_RETURN(std::string text, asked.instructions->AsString());
    AppendTurn({.role = "system", .content = std::move(text)}, out);
  }
  out.Raw(input.conversation).EndArray();
  if (asked.tools) {
    out.Key("tools").BeginArray();
    size_t index = 0;
    RETURN_IF_ERROR(asked.tools->ForEachElement(
        [&](const Value& tool) { return WriteTool(At("tools", index++), tool, out); }));
    out.EndArray();
  }
  if (asked.tool_choice) {
    out.Key("tool_choice");
    RETURN_IF_ERROR(WriteChoice(*asked.tool_choice, out));
  }
  RETURN_IF_ERROR(WriteFormat(asked, out));
  if (asked.chat_template_kwargs)
    out.Key("chat_template_kwargs").Raw(asked.chat_template_kwargs->text());
  out.EndObject();
  return input;
}

std::span<const FieldName> ResponseFieldNames() { return kResponseFieldNames; }

}  // namespace inflight::openai
