// SPDX-License-Identifier: Apache-2.0
// Whether a model is to reason, and how much, in the words of its chat template.
#pragma once

#include <string>
#include <string_view>

#include "answer_parts/answer_parser.h"
#include "conversation/conversation.h"
#include "inflight/status.h"
#include "protocol/openai/body_fields.h"

namespace inflight::openai {

using conversation::TemplateVariables;

// What `asked` says of reasoning, for a template whose answers are read by `reasoning`; null: it
// shows none. kInvalidArgument and kUnimplemented name reasoning_effort, thinking_budget, or
// thinking where Asked::reasons says it: the template does not know it, or chat_template_kwargs has
// the variable.
Result<TemplateVariables> ReasoningVariables(const Asked& asked,
                                             const answer_parts::ReasoningTags* reasoning,
                                             std::string_view template_source);

}  // namespace inflight::openai
