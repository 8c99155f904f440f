// SPDX-License-Identifier: Apache-2.0
// The conversation of another API in the form of chat (docs/reference/protocol/openai.md,
// "Conversations"): the front end checks its own form, writes this one, and asks by it.
//
//   {"messages": [...], "tools": [...], "tool_choice": ..., "response_format": {...},
//    "chat_template_kwargs": {...}}
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inflight/status.h"
#include "json/json_reader.h"
#include "json/json_writer.h"
#include "protocol/openai/body_fields.h"

namespace inflight::openai {

struct ChatCall {
  std::string id, name;
  std::string arguments;  // the text of a JSON object; empty: {}
};

// One message.
struct ChatTurn {
  std::string_view role;
  std::string content;
  std::string reasoning = {};        // of the assistant
  std::vector<ChatCall> calls = {};  // of the assistant
  std::string tool_call_id = {};     // of the role tool
};

void AppendTurn(const ChatTurn& turn, json::Writer& out);

// {"type": "function", "function": {"name": ...}}
void AppendNamedChoice(std::string_view name, json::Writer& out);

// "response_format" of an answer that fits `schema`, with what other members `named` has ("name",
// "description", "strict").
void AppendSchemaFormat(const json::Value& schema,
                        const std::vector<std::pair<std::string_view, json::Value>>& named,
                        json::Writer& out);

// From now on `asked` has the members that the document has, as views into it, and none of those
// that it may have and has not.
Status TakeDocument(std::string_view document, Asked& asked);

}  // namespace inflight::openai
