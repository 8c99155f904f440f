// SPDX-License-Identifier: Apache-2.0
// The answer to one conversation as one message, told part by part to whoever writes it in the form
// of an API. Chat with its several choices has answer.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "answer_parts/part.h"
#include "inflight/request.h"
#include "inflight/status.h"
#include "protocol/openai/start_answer.h"

namespace inflight::openai {

struct MessageUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, found in the KV cache
  int64_t completion_tokens = 0;
};

struct MessageEnd {
  std::string_view reason;  // as chat has it: "stop", "length", "tool_calls"
  std::string stop_text;    // that the answer ended before; empty: none
  MessageUsage usage;
  std::string receipt;  // in JSON; empty: the answer has none
};

// A message is of blocks: reasoning, content, or a call with its arguments. Calls come as Begin;
// Read before what each response has; for each block Open, Append as often as its text goes on,
// Close; Step behind each response; End. Or, at any place, Fail, which is the last. One at a time.
class MessageWriter {
 public:
  virtual ~MessageWriter() = default;

  virtual void Begin(const MessageUsage& usage) = 0;  // of the prompt
  // What the blocks until the next Step are read from.
  virtual void Read(const Response& /*response*/) {}
  // `name`: of the function that a block of the kind kCall calls.
  virtual void Open(answer_parts::Part::Kind kind, std::string_view name) = 0;
  virtual void Append(std::string_view text) = 0;
  virtual void Close(bool is_cut) = 0;             // by the bound of tokens
  virtual void Step() = 0;                         // what a stream has so far goes out
  virtual size_t held_bytes() const { return 0; }  // of what does not go out
  virtual void End(const MessageEnd& end) = 0;
  virtual void Fail(const Status& status) = 0;
};

// Called once.
using MakeWriter = std::function<std::unique_ptr<MessageWriter>(const Started& started)>;

// For StartAnswer, of a question with one prompt and one answer.
MakeSink AnswerByMessage(MakeWriter make_writer);

}  // namespace inflight::openai
