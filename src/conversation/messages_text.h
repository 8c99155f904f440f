// SPDX-License-Identifier: Apache-2.0
// A conversation as one JSON text, as the tensor `messages` has it: a list of messages, or an
// object of these members, of which all but the first may be left out:
//
//   {"messages": [...], "tools": [...], "chat_template_kwargs": {...},
//    "add_generation_prompt": true, "continue_final_message": false}
#pragma once

#include <string_view>

#include "conversation/conversation.h"
#include "inflight/chat_template.h"
#include "inflight/status.h"
#include "inflight/tokenizer.h"

namespace inflight::conversation {

// kInvalidArgument and kUnimplemented name the member: "messages[1].content", "tools[0].function".
// kFailedPrecondition as of Render.
Result<Prompt> PromptOf(std::string_view text, const Tokenizer& tokenizer,
                        const ChatTemplate& chat_template);

}  // namespace inflight::conversation
