// SPDX-License-Identifier: Apache-2.0
// What /v1/responses is asked -> the same in the form of chat (chat_document.h).
//
//   instructions           -> a message of the role system, of this request alone
//   input, a text          -> a message of the user
//   message                -> a message; parts of type input_text and output_text are its lines
//   reasoning              -> reasoning_content of the assistant's message that follows
//   function_call          -> one of tool_calls of the assistant's message that stands before it
//   function_call_output   -> a message of the role tool
//   tools[i]               -> tools[i].function
#pragma once

#include <span>
#include <string>

#include "inflight/status.h"
#include "protocol/openai/body_fields.h"
#include "protocol/openai/field_names.h"

namespace inflight::openai {

struct ResponseInput {
  std::string document;      // of chat, for TakeDocument
  std::string conversation;  // its messages without the instructions, joined by commas
  // The items of the input alone, as this API tells them, each with an id; joined by commas.
  std::string items;
};

// Sets what is said of reasoning and of log-probabilities. `before`: the conversation that a former
// response had, to which the input is added; may be empty. kInvalidArgument and kUnimplemented name
// the member: "input[1].content[0].type".
Result<ResponseInput> ReadResponseInput(Asked& asked, std::string_view before);

// Names of chat's members in this API.
std::span<const FieldName> ResponseFieldNames();

}  // namespace inflight::openai
