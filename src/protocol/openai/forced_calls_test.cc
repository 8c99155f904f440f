// SPDX-License-Identifier: Apache-2.0
// The guide of calls that must be made, as docs/reference/structured-output.md, "Tagged" has it.
#include "protocol/openai/forced_calls.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "protocol/openai/tools.h"

namespace inflight::openai {
namespace {

using Json = nlohmann::json;

const std::string kTools = R"("tools": [
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "x": 1}}},
  {"type": "function", "function": {"name": "g"}}])";

Result<Json> Forced(const std::string& members, const char* format = "hermes") {
  const std::string body = "{" + members + "}";
  const auto asked = ParseBody(body, kChat);
  if (!asked.ok()) return asked.status();
  answer_parts::AnswerFormat how;
  if (asked->tools) how.calls = *answer_parts::CallFormatNamed(format);
  const auto guided = ReadForcedCalls(*asked, how);
  if (!guided.ok()) return guided.status();
  if (!*guided) return Json();
  EXPECT_EQ((*guided)->spec.kind, GuideSpec::Kind::kTagged);
  EXPECT_EQ((*guided)->field, "tool_choice");
  return Json::parse((*guided)->spec.text);
}

TEST(ForcedCallsTest, EachFunctionIsATagAroundItsSchema) {
  const auto forced = Forced(kTools + R"(, "tool_choice": "required")");
  ASSERT_TRUE(forced.ok()) << forced.status().ToString();
  EXPECT_EQ(*forced, Json::parse(R"({
    "tags": [
      {"begin": "<tool_call>\n{\"name\": \"f\", \"arguments\": ",
       "schema": {"type": "object", "x": 1}, "end": "}\n</tool_call>"},
      {"begin": "<tool_call>\n{\"name\": \"g\", \"arguments\": ",
       "schema": {"type": "object", "properties": {}, "additionalProperties": false},
       "end": "}\n</tool_call>"}],
    "between": "\n", "min": 1, "max": 64})"));
}

TEST(ForcedCallsTest, OnlyFunctionsThatAreNamedMayBeCalled) {
  const auto names = [](const Json& forced) {
    std::string begins;
    for (const Json& tag : forced.at("tags")) begins += tag.at("begin").get<std::string>();
    return begins;
  };
  const auto one = Forced(
      kTools + R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})", "llama");
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  EXPECT_EQ(names(*one), R"({"name": "g", "parameters": )");
  EXPECT_EQ(one->at("max"), 1);
  const auto allowed = Forced(
      kTools + R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required",
        "tools": [{"type": "function", "function": {"name": "f"}}]}})",
      "llama");
  ASSERT_TRUE(allowed.ok()) << allowed.status().ToString();
  EXPECT_EQ(names(*allowed), R"({"name": "f", "parameters": )");
  EXPECT_EQ(allowed->at("max"), 64);
  const auto single =
      Forced(kTools + R"(, "tool_choice": "required", "parallel_tool_calls": false)");
  ASSERT_TRUE(single.ok()) << single.status().ToString();
  EXPECT_EQ(single->at("max"), 1);
}

TEST(ForcedCallsTest, NothingIsForcedWhereTheModelMayChoose) {
  EXPECT_TRUE(Forced(kTools)->is_null());
  EXPECT_TRUE(Forced(kTools + R"(, "tool_choice": "auto")")->is_null());
  EXPECT_TRUE(Forced(kTools + R"(, "tool_choice": "none")")->is_null());
}

TEST(ForcedCallsTest, WhatIsWrongIsNamed) {
  EXPECT_EQ(Forced(R"("tool_choice": "required")").status().message(),
            "tool_choice: needs tools that the model may call");
  EXPECT_EQ(Forced(kTools + R"(, "tool_choice": {"type": "function", "function": {"name": "h"}})")
                .status()
                .message(),
            "tool_choice: names 'h', which is none of tools");
  std::string many;
  for (size_t i = 0; i <= kMaxTools; ++i)
    many += std::string(i == 0 ? "" : ",") + R"({"type": "function", "function": {"name": "f"}})";
  EXPECT_EQ(Forced(kTools + R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {
                              "mode": "required", "tools": [)" +
                   many + "]}}")
                .status()
                .message(),
            "tool_choice.allowed_tools.tools: got more than 1024");
  const Status other = Forced(kTools + R"(, "tool_choice": "required")", "pythonic").status();
  EXPECT_EQ(other.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(
      other.message(),
      "tool_choice: is not supported but for auto and none by a model of the format pythonic");
}

}  // namespace
}  // namespace inflight::openai
