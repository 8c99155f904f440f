// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/reasoning.h"

#include <gtest/gtest.h>

#include <string>

namespace inflight::openai {
namespace {

constexpr std::string_view kSwitched = "{% if enable_thinking %}<think>{% endif %}</think>";
constexpr std::string_view kGraded = "Reasoning: {{ reasoning_effort }} </think>";

// "NAME=VALUE ..." of the variables, or the error.
std::string Variables(std::string_view source, const std::string& body) {
  const auto asked = ParseBody(body, kChat);
  if (!asked.ok()) return asked.status().message();
  const auto variables =
      ReasoningVariables(*asked, answer_parts::FindReasoningTags(source), source);
  if (!variables.ok()) return variables.status().message();
  std::string text;
  for (const auto& [name, value] : *variables)
    text.append(text.empty() ? "" : " ").append(name).append("=").append(value);
  return text;
}

TEST(Reasoning, IsTurnedOffByTheVariableThatTheTemplateKnows) {
  const std::string none = R"({"reasoning_effort": "none"})";
  EXPECT_EQ(Variables(kSwitched, none), "enable_thinking=false");
  EXPECT_EQ(Variables("{% if thinking %}<think>{% endif %}</think>", none), "thinking=false");
  EXPECT_EQ(Variables(kGraded, none), R"(reasoning_effort="none")");
  EXPECT_EQ(Variables("no reasoning here", none), "");
  EXPECT_EQ(Variables("<think></think>", none),
            "reasoning_effort: cannot be off: this model's chat template does not turn its "
            "reasoning off; leave it out");
  EXPECT_EQ(Variables("nothing_thinking </think>", none).substr(0, 31),
            "reasoning_effort: cannot be off")
      << "no word of its own";
}

TEST(Reasoning, AnEffortIsOfTemplatesThatKnowIt) {
  EXPECT_EQ(Variables(kGraded, R"({"reasoning_effort": "low"})"), R"(reasoning_effort="low")");
  EXPECT_EQ(Variables(kSwitched, R"({"reasoning_effort": "low"})"),
            "reasoning_effort: is not supported but for none: this model's chat template knows no "
            "effort; leave it out");
  EXPECT_EQ(Variables(kGraded, R"({"reasoning_effort": "huge"})"),
            "reasoning_effort: got 'huge', must be none, minimal, low, medium, high, xhigh or max");
}

TEST(Reasoning, ABudgetIsOfTemplatesThatKnowIt) {
  const std::string_view budgeted = "{% if thinking_budget == 0 %}{% endif %}</seed:think>";
  EXPECT_EQ(Variables(budgeted, R"({"thinking_budget": 512})"), "thinking_budget=512");
  EXPECT_EQ(Variables(budgeted, R"({"reasoning_effort": "none"})"), "thinking_budget=0");
  EXPECT_EQ(
      Variables(budgeted, R"({"reasoning_effort": "none", "thinking_budget": 5})"),
      "thinking_budget: is given beside reasoning_effort, by which the model does not reason");
  EXPECT_EQ(Variables(budgeted, R"({"thinking_budget": 5,
                                    "chat_template_kwargs": {"thinking_budget": 4}})"),
            "thinking_budget: is said by chat_template_kwargs.thinking_budget, too; give one of "
            "them");
  EXPECT_EQ(Variables(kSwitched, R"({"thinking_budget": 512})"), "");
}

TEST(Reasoning, IsSaidOnce) {
  EXPECT_EQ(Variables(kSwitched, R"({"reasoning_effort": "none",
                                     "chat_template_kwargs": {"enable_thinking": true}})"),
            "reasoning_effort: is said by chat_template_kwargs.enable_thinking, too; give one of "
            "them");
  EXPECT_EQ(Variables(kSwitched, "{}"), "");
}

}  // namespace
}  // namespace inflight::openai
