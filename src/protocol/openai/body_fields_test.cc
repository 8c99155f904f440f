// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/body_fields.h"

#include <gmock/gmock.h>

#include <fstream>
#include <set>
#include <string>

#include "protocol/openai/openai_handler.h"

namespace inflight::openai {
namespace {

using testing::HasSubstr;

std::string MessageOf(std::string_view body, BodyKinds kind = kChat) {
  const auto asked = ParseBody(body, kind);
  return asked.ok() ? "OK" : asked.status().message();
}

// What stands in backticks in the first cells of a document's tables.
std::set<std::string> DocumentedNames(const std::string& file) {
  std::set<std::string> names;
  std::ifstream page(INFLIGHT_PROTOCOL_PAGES "/" + file);
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| ")) continue;
    const std::string cell = line.substr(2, line.find(" | ", 2) - 2);
    for (size_t at = cell.find('`'); at != cell.npos; at = cell.find('`', at + 1)) {
      const size_t end = cell.find('`', at + 1);
      names.insert(cell.substr(at + 1, end - at - 1));
      at = end;
    }
  }
  return names;
}

TEST(BodyFieldsTest, TheDocumentListsEachMemberAndEachRoute) {
  constexpr BodyKinds kAnthropic = kMessages | kCountTokens;
  const std::set<std::string> names = DocumentedNames("openai.md");
  const std::set<std::string> anthropic = DocumentedNames("anthropic.md");
  for (const BodyField& field : BodyFields()) {
    const std::string name(field.name);
    EXPECT_TRUE((field.kinds & ~kAnthropic) == 0 || names.contains(name)) << name;
    EXPECT_TRUE((field.kinds & kAnthropic) == 0 || anthropic.contains(name)) << name;
  }
  for (const Route& route : Routes())
    EXPECT_TRUE(names.contains(std::string(route.path))) << route.path;
}

TEST(BodyFieldsTest, AMemberIsReadOrRefusedByItsName) {
  EXPECT_EQ(MessageOf(R"({"messages": [], "temperature": 0.5, "stop": ["a"], "user": "u"})"), "OK");
  EXPECT_EQ(MessageOf(R"({"max_token": 1})"),
            "max_token: is not a member of this request; did you mean 'max_tokens'?");
  EXPECT_EQ(MessageOf(R"({"prompt": "a"})"),
            "prompt: is not a member of this request; did you mean 'messages'?");
  EXPECT_THAT(MessageOf(R"({"functions": [{"name": "f"}]})"),
              HasSubstr("functions: is not supported"));
  EXPECT_EQ(MessageOf(R"({"n": 1, "n": 2})"), "n: is given twice");
}

TEST(BodyFieldsTest, WhatAsksForNothingIsTaken) {
  EXPECT_EQ(MessageOf(R"({"tools": [], "tool_choice": "none", "response_format": { "type": "text" },
                          "functions": null, "store": false, "temperature": null})"),
            "OK");
  EXPECT_EQ(MessageOf(R"({"suffix": "", "best_of": 1})", kCompletion), "OK");
}

TEST(BodyFieldsTest, AnEmptyObjectMayAskForSomething) {
  EXPECT_THAT(MessageOf(R"({"web_search_options": {}})"),
              HasSubstr("web_search_options: is not supported"));
}

// Of conversations that clients of Anthropic's API send: what keeps all is done by doing nothing.
TEST(BodyFieldsTest, EditsThatKeepAllThinkingAreTaken) {
  const auto edited = [](const std::string& edits) {
    return MessageOf(R"({"context_management": {"edits": )" + edits + "}}", kMessages);
  };
  EXPECT_EQ(MessageOf(R"({"context_management": {}})", kMessages), "OK");
  EXPECT_EQ(edited("[]"), "OK");
  EXPECT_EQ(edited(R"([{"type": "clear_thinking_20251015", "keep": "all"}])"), "OK");
  EXPECT_THAT(edited(R"([{"type": "clear_thinking_20251015"}])"),
              HasSubstr(R"(context_management.edits[0].keep: is not supported but for "all")"));
  EXPECT_THAT(
      edited(
          R"([{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}])"),
      HasSubstr(R"(context_management.edits[0].keep: is not supported but for "all")"));
  EXPECT_THAT(edited(R"([{"type": "clear_tool_uses_20250919"}])"),
              HasSubstr("context_management.edits[0].type: got 'clear_tool_uses_20250919': "));
  EXPECT_EQ(edited("1"), "context_management.edits: must be an array");
}

TEST(BodyFieldsTest, ErrorsNameValueAndBound) {
  EXPECT_EQ(MessageOf(R"({"top_p": 1.5})"), "top_p: got 1.5, must be in [0, 1]");
  EXPECT_EQ(MessageOf(R"({"top_p": NaN})"), "top_p: got NaN, must be in [0, 1]");
  EXPECT_EQ(MessageOf(R"({"n": 0})"), "n: got 0, must be in [1, 128]");
  EXPECT_EQ(MessageOf(R"({"max_tokens": 0})"), "max_tokens: got 0, must be at least 1");
  EXPECT_EQ(MessageOf(R"({"n": 1.5})"), "n: got 1.5, must be an integer");
  EXPECT_EQ(MessageOf(R"({"stream": 1})"), "stream: got a number, must be true or false");
  EXPECT_EQ(MessageOf(R"({"logit_bias": {"a": 1}})"),
            "logit_bias: got the key 'a', must be a token id");
  EXPECT_EQ(MessageOf(R"({"stream_options": {"include_usage": true}})"),
            "stream_options: is of streams; set stream too, or leave it out");
  EXPECT_EQ(MessageOf(R"({"top_logprobs": 2})"), "top_logprobs: needs logprobs: true");
  EXPECT_EQ(MessageOf("[]"), "the body is an array, must be a JSON object");
  EXPECT_THAT(MessageOf("{"), HasSubstr("the body is no JSON"));
  EXPECT_EQ(MessageOf("{\"user\": \"\xff\"}"), "the body is not valid UTF-8");
}

// A request of many prompts and answers has its stop texts many times.
TEST(BodyFieldsTest, StopTextsAreBoundedInAll) {
  const std::string half(32768, 'x');
  EXPECT_EQ(MessageOf(R"({"stop": [")" + half + R"(", ")" + half + R"("]})"), "OK");
  const std::string more = R"([")" + half + R"(", ")" + half + R"(", "y"])";
  EXPECT_EQ(MessageOf(R"({"stop": )" + more + "}"),
            "stop: got texts of more than 65536 bytes in all");
  EXPECT_EQ(MessageOf(R"({"stop_sequences": )" + more + "}", kMessages),
            "stop_sequences: got texts of more than 65536 bytes in all");
}

TEST(BodyFieldsTest, ASeedHas64Bits) {
  EXPECT_EQ(ParseBody(R"({"seed": 18446744073709551615})", kChat)->seed, UINT64_MAX);
  EXPECT_EQ(ParseBody(R"({"seed": -1})", kChat)->seed, UINT64_MAX);
  EXPECT_THAT(MessageOf(R"({"seed": 18446744073709551616})"), HasSubstr("integer of 64 bits"));
}

}  // namespace
}  // namespace inflight::openai
