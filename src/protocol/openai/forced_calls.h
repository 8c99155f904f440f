// SPDX-License-Identifier: Apache-2.0
// Calls of tools that an answer must have: tool_choice "required", a named function, and
// allowed_tools that are required. The answer is guided: calls as the model's format writes them,
// whose arguments fit the schemas of their functions.
#pragma once

#include <optional>

#include "answer_parts/answer_parser.h"
#include "inflight/status.h"
#include "protocol/openai/body_fields.h"
#include "serving/core/generation.h"

namespace inflight::openai {

// Whether the choice makes the model call, if it is a valid one.
bool ForcesCalls(const Asked& asked);

// None where no call must be made. `format` is that of the answer. kInvalidArgument and
// kUnimplemented name the member.
Result<std::optional<serving::Generation::Guided>> ReadForcedCalls(
    const Asked& asked, const answer_parts::AnswerFormat& format);

}  // namespace inflight::openai
