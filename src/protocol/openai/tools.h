// SPDX-License-Identifier: Apache-2.0
// The tools of a request, and how the answer's text is read for calls of them and for reasoning.
#pragma once

#include <memory>
#include <string>

#include "answer_parts/answer_parser.h"
#include "protocol/openai/body_fields.h"
#include "serving/core/generation.h"

namespace inflight::openai {

inline constexpr size_t kMaxTools = 1024;  // of one request

// How models write, where their templates do not say it: names of formats, "auto" or "none".
struct MessageFormats {
  std::string tool_calls = "auto";  // --tool-call-format
  std::string reasoning = "auto";   // --reasoning-format
};

// kInvalidArgument names the option and lists the formats.
Status CheckFormats(const MessageFormats& formats);

// There are tools, and the model is told of them.
bool ShowsTools(const Asked& asked);

// The names of the tools' functions. kInvalidArgument and kUnimplemented name the member.
Result<std::shared_ptr<const answer_parts::FunctionNames>> ReadTools(const Asked& asked);

// How the answer to `asked` is read. kInvalidArgument: the model knows no tools.
Result<answer_parts::AnswerFormat> ChooseFormat(const MessageFormats& formats, const Asked& asked,
                                                const ChatTemplate& chat_template);

// How the model marks its reasoning; null: it does not, or nobody is to look for it.
Result<const answer_parts::ReasoningTags*> ReasoningOf(const MessageFormats& formats,
                                                       const ChatTemplate& chat_template);

// The special tokens that such an answer is read by.
std::vector<TokenId> ShownTokens(const answer_parts::AnswerFormat& format,
                                 const Tokenizer& tokenizer);

}  // namespace inflight::openai
