// SPDX-License-Identifier: Apache-2.0
#include "answer_parts/reasoning_tags.h"

#include <algorithm>
#include <string>

#include "answer_parts/part.h"

namespace inflight::answer_parts {
namespace {

constexpr ReasoningTags kTags[] = {
    {.name = "deepseek", .template_has = "</think>", .begin = "<think>", .end = "</think>"},
    {.name = "gemma",
     .template_has = "<channel|>",
     .begin = "<|channel>thought\n",
     .end = "<channel|>"},
    {.name = "harmony",
     .template_has = "<|channel|>analysis<|message|>",
     .begin = "<|channel|>analysis<|message|>",
     .end = "<|channel|>final<|message|>",
     .has_channels = true,
     .message_end = "<|end|>",
     .next_message = "<|start|>assistant"},
    {.name = "mistral", .template_has = "[/THINK]", .begin = "[THINK]", .end = "[/THINK]"},
    {.name = "seed",
     .template_has = "</seed:think>",
     .begin = "<seed:think>",
     .end = "</seed:think>",
     .begun = "<seed:think><seed:cot_budget_reflect>"},
};

}  // namespace

std::string ReasoningTagNames() {
  std::string names;
  for (const ReasoningTags& tags : kTags) names.append(names.empty() ? "" : ", ").append(tags.name);
  return names;
}

const ReasoningTags* FindReasoningTags(std::string_view chat_template) {
  const auto* const found = std::ranges::find_if(kTags, [&](const ReasoningTags& tags) {
    return chat_template.find(tags.template_has) != std::string::npos;
  });
  return found == std::end(kTags) ? nullptr : found;
}

Result<const ReasoningTags*> ReasoningTagsNamed(std::string_view name) {
  for (const ReasoningTags& tags : kTags)
    if (tags.name == name) return &tags;
  return InvalidArgument("got '" + std::string(name.substr(0, 64)) + "', the formats are " +
                         ReasoningTagNames());
}

BeginsIn FindBegin(const ReasoningTags& tags, std::string_view prompt) {
  prompt = WithoutBlanksBehind(prompt);
  if (prompt.ends_with(tags.end)) return BeginsIn::kContent;
  const bool is_begun = !tags.begun.empty() && prompt.ends_with(tags.begun);
  return is_begun || prompt.ends_with(tags.begin) ? BeginsIn::kReasoning : BeginsIn::kAnything;
}

}  // namespace inflight::answer_parts
