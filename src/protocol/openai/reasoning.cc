// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/reasoning.h"

#include <array>
#include <string>

#include "base/status_macros.h"
#include "json/json_writer.h"

namespace inflight::openai {
namespace {

using conversation::KnowsWord;

constexpr std::string_view kField = "reasoning_effort";
constexpr std::string_view kNoEffort = "none";
// By which templates turn reasoning on and off: Qwen 3, GLM 4.5 and others; DeepSeek V3.1, Granite.
constexpr std::array<std::string_view, 2> kSwitches = {"enable_thinking", "thinking"};
// Seed-OSS's is told how many tokens the model may reason with; 0 turns it off.
constexpr std::string_view kBudget = "thinking_budget";

// Who says whether the model reasons.
std::string_view FieldOf(const Asked& asked) {
  return asked.reasoning_effort.empty() ? "thinking" : kField;
}

Status CheckNotGiven(const Asked& asked, std::string_view field, std::string_view variable) {
  if (!asked.chat_template_kwargs) return Status::Ok();
  if (!asked.chat_template_kwargs->Pick(std::array<std::string_view, 1>{variable})[0])
    return Status::Ok();
  return InvalidArgument(field, "is said by chat_template_kwargs." + std::string(variable) +
                                    ", too; give one of them");
}

}  // namespace

Result<TemplateVariables> ReasoningVariables(const Asked& asked,
                                             const answer_parts::ReasoningTags* reasoning,
                                             std::string_view source) {
  TemplateVariables variables;
  if (asked.thinking_budget && KnowsWord(source, kBudget)) {
    RETURN_IF_ERROR(CheckNotGiven(asked, kBudget, kBudget));
    variables.emplace_back(kBudget, std::to_string(*asked.thinking_budget));
  }
  const bool is_off = asked.reasoning_effort == kNoEffort || asked.reasons == false;
  const bool knows_effort = KnowsWord(source, kField);
  if (!asked.reasoning_effort.empty() && !is_off && !knows_effort)
    return Unimplemented(kField,
                         "is not supported but for none: this model's chat template knows "
                         "no effort; leave it out");
  if (!asked.reasoning_effort.empty() && knows_effort) {
    RETURN_IF_ERROR(CheckNotGiven(asked, kField, kField));
    json::AppendString(variables.emplace_back(kField, "").second, asked.reasoning_effort);
    if (is_off) return variables;
  }
  if (!is_off && !asked.reasons) return variables;
  for (const std::string_view name : kSwitches) {
    if (!KnowsWord(source, name)) continue;
    RETURN_IF_ERROR(CheckNotGiven(asked, FieldOf(asked), name));
    variables.emplace_back(name, is_off ? "false" : "true");
    return variables;
  }
  if (is_off && KnowsWord(source, kBudget)) {
    if (asked.thinking_budget)
      return InvalidArgument(kBudget, "is given beside " + std::string(FieldOf(asked)) +
                                          ", by which the model does not reason");
    RETURN_IF_ERROR(CheckNotGiven(asked, FieldOf(asked), kBudget));
    variables.emplace_back(kBudget, "0");
    return variables;
  }
  if (is_off && reasoning != nullptr)
    return Unimplemented(FieldOf(asked),
                         "cannot be off: this model's chat template does not turn its "
                         "reasoning off; leave it out");
  return variables;
}

}  // namespace inflight::openai
