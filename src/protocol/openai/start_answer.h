// SPDX-License-Identifier: Apache-2.0
// What endpoints of generation do once their prompts are known, whatever API they speak: ask the
// model for each, and hand what it says to whoever writes the answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "answer_parts/answer_parser.h"
#include "base/memory_account.h"
#include "protocol/openai/body_fields.h"
#include "protocol/openai/endpoints.h"
#include "protocol/openai/served_models.h"

namespace inflight::openai {

// One prompt, as serving::Generation has it.
struct PromptSource {
  std::vector<TokenId> ids = {};
  std::function<Result<serving::PromptText>()> make = {};
  size_t text_bytes = 0;
  size_t num_shorter = 0;
  std::function<Result<serving::PromptText>(size_t index)> make_shorter = {};
};

// Of a whole answer, which counts for nothing beside the request that it is of.
inline constexpr size_t kUncountedBytes = 4096;
// What a conversation and its rendering take beside the body, for each of its bytes.
inline constexpr size_t kBytesPerBodyByte = 4;

struct Question {
  std::vector<PromptSource> prompts = {};
  size_t body_bytes = 0;       // that the prompts were made of
  size_t held_bytes = 0;       // that the answer holds from its beginning on
  MemoryCharge charge = {};    // of what was made already, if of anything
  int default_max_tokens = 0;  // 0: what the sequence has room for
  bool is_chat = false;        // its prompts are messages
  // Of chat: how the answer is read, and how its text begins, which is set when the prompt is made.
  answer_parts::AnswerFormat format = {};
  std::shared_ptr<const answer_parts::BeginsIn> begins_in = {};
};

// Writes the answer as responses come. Responses of one prompt come one after the other, those of
// several from several threads.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void OnResponse(size_t prompt, const serving::Response& response) = 0;
};

// What a sink is made with.
struct Started {
  uint64_t seed = 0;
  std::vector<std::shared_ptr<serving::CancelToken>> cancels;  // [prompts]
  answer_parts::AnswerFormat format;
  std::shared_ptr<const answer_parts::BeginsIn> begins_in;
  std::shared_ptr<AccountShare> memory = {};  // that what it holds is charged to
};
using MakeSink = std::function<std::shared_ptr<AnswerSink>(Started started)>;

// An error is the caller's to answer: no sink was made then. A client that disconnects cancels.
Status StartAnswer(const Context& context, const ServedModel& served, const Asked& asked,
                   Question question, const http_listener::HttpRequest& request,
                   http_listener::HttpResponder& responder, const MakeSink& make_sink);

}  // namespace inflight::openai
