// SPDX-License-Identifier: Apache-2.0
// What the text of an answer must be, as a body says it: OpenAI's response_format, and the
// structured_outputs and guided_... of vLLM. docs/structured-output.md shows their forms.
#pragma once

#include <optional>

#include "inflight/status.h"
#include "protocol/openai/body_fields.h"
#include "serving/core/generation.h"

namespace inflight::openai {

// None where the answer may be anything. kInvalidArgument and kUnimplemented name the member; where
// two members ask for something, the second.
Result<std::optional<serving::Generation::Guided>> ReadAnswerGuide(const Asked& asked);

}  // namespace inflight::openai
