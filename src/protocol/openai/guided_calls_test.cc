// SPDX-License-Identifier: Apache-2.0
// The guides of calls whose arguments must fit, as docs/reference/structured-output.md, "Tagged"
// has it.
#include "protocol/openai/guided_calls.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "protocol/openai/tools.h"

namespace inflight::openai {
namespace {

using Json = nlohmann::json;

const std::string kTools = R"("tools": [
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "x": 1}}},
  {"type": "function", "function": {"name": "g"}}])";

Result<Json> Forced(const std::string& members, const char* format = "hermes",
                    const GuideSpec* answer = nullptr) {
  const std::string body = "{" + members + "}";
  const auto asked = ParseBody(body, kChat);
  if (!asked.ok()) return asked.status();
  answer_parts::AnswerFormat how;
  if (asked->tools) how.calls = *answer_parts::CallFormatNamed(format);
  const auto names = ReadTools(*asked);
  if (!names.ok()) return names.status();
  how.names = *names;
  const auto guided = ReadGuidedCalls(*asked, how, answer);
  if (!guided.ok()) return guided.status();
  if (!*guided) return Json();
  EXPECT_EQ((*guided)->spec.kind, GuideSpec::Kind::kTagged);
  const bool is_forced = asked->tool_choice && ForcesCalls(*asked);
  EXPECT_EQ((*guided)->field, is_forced ? "tool_choice" : "tools");
  return Json::parse((*guided)->spec.text);
}

TEST(GuidedCallsTest, EachFunctionIsATagAroundItsSchema) {
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

TEST(GuidedCallsTest, OnlyFunctionsThatAreNamedMayBeCalled) {
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

TEST(GuidedCallsTest, NothingIsForcedWhereTheModelMayChoose) {
  EXPECT_TRUE(Forced(kTools)->is_null());
  EXPECT_TRUE(Forced(kTools + R"(, "tool_choice": "auto")")->is_null());
  EXPECT_TRUE(Forced(kTools + R"(, "tool_choice": "none")")->is_null());
}

// As ChooseFormat has it of a model whose reasoning is not asked for.
TEST(GuidedCallsTest, AModelInChannelsThatIsShownNoToolsIsNotGuided) {
  answer_parts::AnswerFormat format;
  format.calls = *answer_parts::CallFormatNamed("harmony");
  format.names = std::make_shared<const answer_parts::FunctionNames>();
  using Guided = serving::Generation::Guided;
  const auto guided = [&](const std::string& body) -> Result<std::optional<Guided>> {
    const auto asked = ParseBody(body, kChat);
    if (!asked.ok()) return asked.status();
    return ReadGuidedCalls(*asked, format);
  };
  const auto none = guided("{}");
  ASSERT_TRUE(none.ok()) << none.status().ToString();
  EXPECT_FALSE(none->has_value());
  const auto hidden = guided(R"({"tool_choice": "none", "tools": [
      {"type": "function", "function": {"name": "f", "strict": true}}]})");
  ASSERT_TRUE(hidden.ok()) << hidden.status().ToString();
  EXPECT_FALSE(hidden->has_value());
  EXPECT_EQ(guided(R"({"tool_choice": "required"})").status().message(),
            "tool_choice: needs tools that the model may call");
}

TEST(GuidedCallsTest, StrictFunctionsAreGuidedWhereTheModelMayChoose) {
  const std::string tools = R"("tools": [
    {"type": "function", "function": {"name": "f", "strict": true, "parameters": {"x": 1}}},
    {"type": "function", "function": {"name": "g"}}])";
  const auto hermes = Forced(tools);
  ASSERT_TRUE(hermes.ok()) << hermes.status().ToString();
  EXPECT_EQ(*hermes, Json::parse(R"({
    "trigger": "<tool_call>",
    "tags": [
      {"begin": "\n{\"name\": \"f\", \"arguments\": ",
       "schema": {"type": "object", "x": 1}, "end": "}\n</tool_call>"},
      {"begin": "\n{\"name\": \"g\", \"arguments\": ",
       "schema": {"type": "object"}, "end": "}\n</tool_call>"}],
    "min": 1, "max": 1})"));
  const auto once = Forced(tools + R"(, "parallel_tool_calls": false)", "list");
  ASSERT_TRUE(once.ok()) << once.status().ToString();
  EXPECT_EQ(once->at("once"), true);
  EXPECT_EQ(once->at("before"), "[");
  EXPECT_EQ(once->at("never"), Json::parse(R"(["functools["])"));
  EXPECT_TRUE(Forced(tools + R"(, "tool_choice": "auto")")->contains("trigger"));
  const auto whole = Forced(tools, "pythonic");
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  EXPECT_EQ(whole->at("instead"), R"(\s*([^\s\[][\s\S]*)?)");
  EXPECT_EQ(whole->at("never").size(), 3U);
  EXPECT_FALSE(Forced(tools + R"(, "tool_choice": "required")", "llama")->contains("instead"));
}

TEST(GuidedCallsTest, AGuidedAnswerMayStandInPlaceOfCallsThatFit) {
  const GuideSpec answer{.kind = GuideSpec::Kind::kJsonSchema, .text = R"({"y": 2})"};
  const auto hermes = Forced(kTools, "hermes", &answer);
  ASSERT_TRUE(hermes.ok()) << hermes.status().ToString();
  EXPECT_EQ(hermes->at("answer"), Json::parse(R"({"begin": "", "schema": {"y": 2}, "end": ""})"));
  EXPECT_FALSE(hermes->contains("trigger"));
  EXPECT_EQ(hermes->at("tags")[0].at("schema"), Json::parse(R"({"type": "object", "x": 1})"));
  const auto harmony = Forced(kTools, "harmony", &answer);
  ASSERT_TRUE(harmony.ok()) << harmony.status().ToString();
  EXPECT_EQ(harmony->at("answer").at("begin"), "<|channel|>final<|message|>");
  EXPECT_EQ(harmony->at("preambles").size(), 1U);  // reasoning
  EXPECT_FALSE(harmony->contains("otherwise"));
  const GuideSpec broken{.kind = GuideSpec::Kind::kJsonSchema, .text = "{"};
  EXPECT_EQ(Forced(kTools, "hermes", &broken).status().code(), StatusCode::kInvalidArgument);
}

TEST(GuidedCallsTest, WhatIsWrongIsNamed) {
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
}

}  // namespace
}  // namespace inflight::openai
