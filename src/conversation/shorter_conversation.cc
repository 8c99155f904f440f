// SPDX-License-Identifier: Apache-2.0
#include "conversation/shorter_conversation.h"

#include <array>
#include <string>
#include <string_view>

#include "json/json_reader.h"
#include "json/json_writer.h"

namespace inflight::conversation {
namespace {

using json::Value;

constexpr std::string_view kMessagesName = "messages";

std::string_view RoleOf(const Value& message) {
  constexpr std::array<std::string_view, 1> kNames = {"role"};
  const auto [role] = message.Pick(kNames);
  return role ? role->text() : std::string_view();
}

// `variables` of a Conversation, which are JSON.
std::string Without(const std::string& variables, size_t num_messages) {
  std::string shorter;
  const auto root = Value::Parse(variables);
  if (!root.ok()) return shorter;
  json::Writer out(shorter);
  out.BeginObject();
  (void)root->ForEachMember([&](std::string_view name, const Value& value) {
    out.Key(name);
    if (name != kMessagesName) {
      out.Raw(value.text());
      return Status::Ok();
    }
    out.BeginArray();
    size_t index = 0;
    (void)value.ForEachElement([&](const Value& message) {
      if (index++ >= num_messages || RoleOf(message) == "\"system\"") out.Raw(message.text());
      return Status::Ok();
    });
    out.EndArray();
    return Status::Ok();
  });
  out.EndObject();
  return shorter;
}

}  // namespace

std::vector<size_t> LaterBegins(const Conversation& conversation) {
  std::vector<size_t> begins;
  const auto root = Value::Parse(conversation.variables);
  if (!root.ok()) return begins;
  constexpr std::array<std::string_view, 1> kNames = {kMessagesName};
  const auto [messages] = root->Pick(kNames);
  if (!messages) return begins;
  std::vector<size_t> of_assistant;  // since the last of the user
  bool has_begun = false;            // before this message there is one that may go
  size_t index = 0;
  (void)messages->ForEachElement([&](const Value& message) {
    const std::string_view role = RoleOf(message);
    if (role == "\"user\"") {
      of_assistant.clear();
      if (has_begun) begins.push_back(index);
    } else if (role == "\"assistant\"" && has_begun) {
      of_assistant.push_back(index);
    }
    has_begun = has_begun || role != "\"system\"";
    ++index;
    return Status::Ok();
  });
  begins.insert(begins.end(), of_assistant.begin(), of_assistant.end());
  return begins;
}

Conversation BeginningAt(const Conversation& conversation, size_t message) {
  Conversation shorter = {.variables = Without(conversation.variables, message),
                          .with_texts = {},
                          .mark = conversation.mark,
                          .continued = conversation.continued};
  if (!conversation.with_texts.empty())
    shorter.with_texts = Without(conversation.with_texts, message);
  return shorter;
}

}  // namespace inflight::conversation
