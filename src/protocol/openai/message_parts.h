// SPDX-License-Identifier: Apache-2.0
// The parts of one sequence's answer, as its responses come, and why it ended.
#pragma once

#include <optional>
#include <string_view>

#include "answer_parts/answer_parser.h"
#include "serving/core/generation.h"

namespace inflight::openai {

// "length", else "stop".
std::string_view ReasonName(FinishReason reason);

class MessageParts {
 public:
  MessageParts(const answer_parts::AnswerFormat& format, answer_parts::BeginsIn begin);

  answer_parts::Parts Read(const serving::Generated& generated);

  // Empty until the last response; "tool_calls" for "stop" where there are calls.
  std::string_view finish_reason() const { return finish_reason_; }

 private:
  std::optional<answer_parts::AnswerParser> parser_;  // none: the text is all content
  std::string_view finish_reason_;
};

}  // namespace inflight::openai
