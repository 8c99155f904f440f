// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/message_parts.h"

namespace inflight::openai {

using answer_parts::Part;
using answer_parts::Parts;

std::string_view ReasonName(FinishReason reason) {
  return reason == FinishReason::kLength ? "length" : "stop";
}

MessageParts::MessageParts(const answer_parts::AnswerFormat& format, answer_parts::BeginsIn begin) {
  if (!format.is_plain()) parser_.emplace(format, begin);
}

Parts MessageParts::Read(const serving::Generated& generated) {
  Parts parts;
  const bool is_last = generated.response.is_sequence_final;
  if (is_last) finish_reason_ = ReasonName(generated.finish_reason);
  if (!parser_) {
    parts.Add(Part::Kind::kContent, generated.text);
    return parts;
  }
  parser_->Add(generated.text, parts);
  if (!is_last) return parts;
  parser_->Finish(parts);
  if (parser_->num_calls() > 0 && finish_reason_ == "stop") finish_reason_ = "tool_calls";
  return parts;
}

}  // namespace inflight::openai
