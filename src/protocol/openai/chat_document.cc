// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/chat_document.h"

#include <array>

#include "base/status_macros.h"

namespace inflight::openai {

void AppendTurn(const ChatTurn& turn, json::Writer& out) {
  out.BeginObject().Key("role").String(turn.role).Key("content").String(turn.content);
  if (!turn.reasoning.empty()) out.Key("reasoning_content").String(turn.reasoning);
  if (!turn.tool_call_id.empty()) out.Key("tool_call_id").String(turn.tool_call_id);
  if (!turn.calls.empty()) {
    out.Key("tool_calls").BeginArray();
    for (const ChatCall& call : turn.calls) {
      out.BeginObject().Key("id").String(call.id).Key("type").String("function");
      out.Key("function").BeginObject().Key("name").String(call.name);
      out.Key("arguments").String(call.arguments).EndObject().EndObject();
    }
    out.EndArray();
  }
  out.EndObject();
}

void AppendNamedChoice(std::string_view name, json::Writer& out) {
  out.BeginObject().Key("type").String("function");
  out.Key("function").BeginObject().Key("name").String(name).EndObject().EndObject();
}

void AppendSchemaFormat(const json::Value& schema,
                        const std::vector<std::pair<std::string_view, json::Value>>& named,
                        json::Writer& out) {
  out.Key("response_format").BeginObject().Key("type").String("json_schema");
  out.Key("json_schema").BeginObject().Key("schema").Raw(schema.text());
  for (const auto& [name, value] : named) out.Key(name).Raw(value.text());
  out.EndObject().EndObject();
}

Status TakeDocument(std::string_view document, Asked& asked) {
  ASSIGN_OR_RETURN(const json::Value root, json::Value::Parse(document));
  constexpr std::array<std::string_view, 5> kNames = {"messages", "tools", "tool_choice",
                                                      "response_format", "chat_template_kwargs"};
  const auto [messages, tools, tool_choice, response_format, variables] = root.Pick(kNames);
  asked.messages = messages;
  asked.tools = tools;
  asked.tool_choice = tool_choice;
  asked.response_format = response_format;
  asked.chat_template_kwargs = variables;
  return Status::Ok();
}

}  // namespace inflight::openai
