// SPDX-License-Identifier: Apache-2.0
// Messages, tools and settings -> the prompt that the model's template makes of them, and how the
// answer is read. What chat, responses and Anthropic's messages have in common begins here and goes
// on in start_answer.h and message_answer.h.
//
// Errors name members of chat. A front end whose members have other names gives them by
// field_names.h.
#pragma once

#include <string_view>
#include <vector>

#include "inflight/status.h"
#include "protocol/openai/body_fields.h"
#include "protocol/openai/endpoints.h"
#include "protocol/openai/served_models.h"
#include "protocol/openai/start_answer.h"

namespace inflight::openai {

// `text` is what the values of `asked` are views into. It is read before this returns; the prompt
// itself is rendered where it is tokenized, as a long conversation is not for this thread.
Result<Question> AskChat(const Context& context, const Asked& asked, const ServedModel& served,
                         std::string_view text);

// The ids of the prompt that AskChat would ask with.
Result<std::vector<TokenId>> ChatIds(const Context& context, const Asked& asked,
                                     const ServedModel& served, std::string_view text);

}  // namespace inflight::openai
