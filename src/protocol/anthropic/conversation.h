// SPDX-License-Identifier: Apache-2.0
// A conversation in the form of Anthropic's API -> the same in the form of chat
// (protocol/openai/chat_document.h).
//
//   system                        -> a message of the role system
//   blocks of type text           -> the lines of a message's content
//   thinking                      -> reasoning_content
//   tool_use                      -> tool_calls
//   tool_result                   -> a message of the role tool, before the text that follows it
//   tools[i].input_schema         -> tools[i].function.parameters
//   tool_choice auto, none, any, tool -> "auto", "none", "required", the named function
#pragma once

#include <span>
#include <string>

#include "inflight/status.h"
#include "protocol/openai/body_fields.h"
#include "protocol/openai/field_names.h"

namespace inflight::anthropic {

// The document, for openai::TakeDocument. Sets in `asked` what tool_choice says of calls beside
// each other, what is said of thinking, and whether the last message is continued. kInvalidArgument
// and kUnimplemented name the member: "messages[1].content[0].type".
Result<std::string> ToChat(openai::Asked& asked);

// Names of chat's members in this API.
std::span<const openai::FieldName> FieldNames();

}  // namespace inflight::anthropic
