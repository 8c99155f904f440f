// SPDX-License-Identifier: Apache-2.0
// Calls of tools whose arguments must fit. tool_choice "required", a named function, and
// allowed_tools that are required: the answer is calls alone, and all of them fit. Else, where a
// tool is strict, the model calls or not, and its calls of such tools fit. The guide is made of the
// model's format of calls.
#pragma once

#include <optional>

#include "answer_parts/answer_parser.h"
#include "inflight/status.h"
#include "protocol/openai/body_fields.h"
#include "serving/core/generation.h"

namespace inflight::openai {

// Whether the choice makes the model call, if it is a valid one.
bool ForcesCalls(const Asked& asked);

// None where calls may be as the model writes them. `format` is that of the answer; `answer`, if
// not null, is what the text must be where the model does not call, and makes all calls fit.
// kInvalidArgument and kUnimplemented name the member.
Result<std::optional<serving::Generation::Guided>> ReadGuidedCalls(
    const Asked& asked, const answer_parts::AnswerFormat& format,
    const GuideSpec* answer = nullptr);

}  // namespace inflight::openai
