// SPDX-License-Identifier: Apache-2.0
#include "protocol/anthropic/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace inflight::anthropic {
namespace {

// The document of a body that has these members, or the error.
std::string Chat(const std::string& members) {
  const std::string body = "{\"max_tokens\": 1, " + members + "}";
  auto asked = openai::ParseBody(body, openai::kMessages);
  if (!asked.ok()) return asked.status().message();
  const auto document = ToChat(*asked);
  return document.ok() ? *document : document.status().message();
}

std::string Messages(const std::string& messages) {
  const std::string document = Chat("\"messages\": " + messages);
  const std::string head = "{\"messages\":";
  return document.starts_with(head)
             ? document.substr(head.size(), document.size() - head.size() - 1)
             : document;
}

TEST(AnthropicConversation, BlocksBecomeMessages) {
  EXPECT_EQ(Messages(R"([{"role": "user", "content": "a"}])"),
            R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(Messages(R"([{"role": "user", "content": [{"type": "text", "text": "a"},
                         {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]}])"),
            R"([{"role":"user","content":"a\nb"}])");
  EXPECT_EQ(Messages(R"([{"role": "assistant", "content": [
                     {"type": "thinking", "thinking": "hm", "signature": "x"},
                     {"type": "text", "text": "Let me see."},
                     {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": [1, "é"]}}]},
                   {"role": "user", "content": [
                     {"type": "tool_result", "tool_use_id": "t1", "content": "3"},
                     {"type": "tool_result", "tool_use_id": "t2", "is_error": true,
                      "content": [{"type": "text", "text": "no"}]},
                     {"type": "text", "text": "And now?"}]}])"),
            R"([{"role":"assistant","content":"Let me see.","reasoning_content":"hm",)"
            R"("tool_calls":[{"id":"t1","type":"function",)"
            R"("function":{"name":"add","arguments":"{\"a\": [1, \"é\"]}"}}]},)"
            R"({"role":"tool","content":"3","tool_call_id":"t1"},)"
            R"({"role":"tool","content":"Error: no","tool_call_id":"t2"},)"
            R"({"role":"user","content":"And now?"}])");
}

TEST(AnthropicConversation, ALastMessageOfTheAssistantIsContinued) {
  for (const bool is_continued : {false, true}) {
    const std::string role = is_continued ? "assistant" : "user";
    const std::string body = R"({"messages": [{"role": "user", "content": "a"}, {"role": ")" +
                             role + R"(", "content": "b"}]})";
    auto asked = openai::ParseBody(body, openai::kMessages);
    ASSERT_TRUE(asked.ok());
    ASSERT_TRUE(ToChat(*asked).ok());
    EXPECT_EQ(asked->continues, is_continued);
  }
}

TEST(AnthropicConversation, MessagesOfOneRoleAreOneTurn) {
  EXPECT_EQ(Messages(R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"},
                         {"role": "assistant", "content": "c"},
                         {"role": "assistant", "content": [
                           {"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
                         {"role": "user", "content": [
                           {"type": "tool_result", "tool_use_id": "1"}]},
                         {"role": "user", "content": "d"}])"),
            R"([{"role":"user","content":"a\nb"},)"
            R"({"role":"assistant","content":"c","tool_calls":[{"id":"1","type":"function",)"
            R"("function":{"name":"f","arguments":"{}"}}]},)"
            R"({"role":"tool","content":"","tool_call_id":"1"},{"role":"user","content":"d"}])");
}

TEST(AnthropicConversation, SystemToolsAndChoiceGoAlong) {
  EXPECT_EQ(
      Chat(R"("messages": [{"role": "user", "content": "a"}],
                    "system": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}],
                    "tools": [{"name": "f", "description": "d", "input_schema": {"type":"object"}}],
                    "tool_choice": {"type": "tool", "name": "f"}, "chat_template_kwargs": {"a": 1})"),
      R"({"messages":[{"role":"system","content":"Be\nbrief."},{"role":"user","content":"a"}],)"
      R"("tools":[{"type":"function","function":{"name":"f","description":"d",)"
      R"("parameters":{"type":"object"}}}],)"
      R"("tool_choice":{"type":"function","function":{"name":"f"}},)"
      R"("chat_template_kwargs":{"a": 1}})");
}

TEST(AnthropicConversation, WhatIsWrongIsRefusedByItsName) {
  const std::string user = R"([{"role": "user", "content": )";
  EXPECT_EQ(Messages(user + R"([{"type": "image", "source": {}}]}])"),
            "messages[0].content[0].type: got 'image': this model takes text, thinking, tool_use "
            "and tool_result alone");
  EXPECT_EQ(Messages(user + R"([{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}])"),
            "messages[0].content[0].type: got 'tool_use', which is of the role assistant alone");
  EXPECT_EQ(Messages(user + R"([{"type": "text"}]}])"), "messages[0].content[0].text: is missing");
  EXPECT_EQ(Messages(user + R"("a", "name": "b"}])"),
            "messages[0].name: is not a member of a message; those are role, content");
  const std::string hello = R"("messages": [{"role": "user", "content": "a"}], )";
  EXPECT_EQ(Chat(hello + R"("tools": [{"type": "web_search_20250305", "name": "web_search"}])"),
            "tools[0].type: got \"web_search_20250305\": this server runs no tools; those of the "
            "client are \"custom\"");
  EXPECT_EQ(Chat(hello + R"("tool_choice": {"type": "some"})"),
            "tool_choice.type: got 'some', must be auto, any, tool or none");
}

TEST(AnthropicConversation, AToolIsSeenAtOnceAndCalledByTheModel) {
  const auto tool = [](const std::string& members) {
    return Chat(R"("messages": [{"role": "user", "content": "a"}], "tools": [{"name": "f", )"
                R"("input_schema": {"type": "object"}, )" +
                members + "}]");
  };
  const std::string plain = tool(R"("type": "custom")");
  EXPECT_THAT(plain, testing::HasSubstr(R"("name":"f")"));
  EXPECT_EQ(tool(R"("defer_loading": false, "allowed_callers": ["direct"], "input_examples": [])"),
            plain);
  EXPECT_EQ(tool(R"("defer_loading": true)"),
            "tools[0].defer_loading: is not supported: the model sees all tools; leave it out");
  EXPECT_EQ(tool(R"("allowed_callers": ["direct", "code_execution_20250825"])"),
            "tools[0].allowed_callers: is not supported but for \"direct\": this server runs no "
            "tools");
  EXPECT_EQ(tool(R"("input_examples": [{"a": 1}])"),
            "tools[0].input_examples: is not supported: put them into the description");
}

TEST(AnthropicConversation, ErrorsOfChatHaveTheNamesOfThisApi) {
  const auto named = [](std::string_view field) {
    return openai::ByOwnNames(FieldNames(), InvalidArgument(field, "is wrong")).message();
  };
  EXPECT_EQ(named("tools[1].function.parameters.type"), "tools[1].input_schema.type: is wrong");
  EXPECT_EQ(named("tools[1].function.name"), "tools[1].name: is wrong");
  EXPECT_EQ(named("messages[3].tool_calls[0].function.arguments"), "messages: is wrong");
  EXPECT_EQ(named("top_p"), "top_p: is wrong");
  EXPECT_EQ(named("chat_template_kwargs.messages"), "chat_template_kwargs.messages: is wrong");
}

}  // namespace
}  // namespace inflight::anthropic
