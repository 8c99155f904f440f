// SPDX-License-Identifier: Apache-2.0
// The tags between which models reason before they answer.
#pragma once

#include <string>
#include <string_view>

#include "inflight/status.h"

namespace inflight::answer_parts {

struct ReasoningTags {
  std::string_view name;          // of --reasoning-format
  std::string_view template_has;  // a text that the templates of such models have
  std::string_view begin;
  std::string_view end;
  std::string_view begun = {};  // with what a prompt may end beside `begin`; empty: nothing
  // Of the call format of the same name, whose reader tells reasoning.
  bool has_channels = false;
  // Of answers in channels: what ends a message, and what stands between it and the next channel.
  std::string_view message_end = {};
  std::string_view next_message = {};
};

std::string ReasoningTagNames();  // "deepseek, gemma, ..."

// Of a model, by the text of its chat template; null where it shows none.
const ReasoningTags* FindReasoningTags(std::string_view chat_template);

// By name; kInvalidArgument lists the names.
Result<const ReasoningTags*> ReasoningTagsNamed(std::string_view name);

// How the text of an answer begins, by the end of its prompt: a template may open the reasoning
// itself, or close it at once, for a model that is not to reason.
enum class BeginsIn { kAnything, kReasoning, kContent };
BeginsIn FindBegin(const ReasoningTags& tags, std::string_view prompt);

}  // namespace inflight::answer_parts
