// SPDX-License-Identifier: Apache-2.0
// The answer of /v1/chat/completions and /v1/completions, whole or in events, written as responses
// come: no tree of JSON, and in a stream one chunk for each response.
//
// Threads: responses of one prompt come one after the other, those of several prompts from several
// threads; a lock that only those contend for keeps the answer in one piece.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/http_listener/http_message.h"
#include "protocol/openai/body_fields.h"
#include "protocol/openai/event_sender.h"
#include "protocol/openai/log_probs.h"
#include "protocol/openai/message_parts.h"
#include "protocol/openai/served_models.h"
#include "protocol/openai/start_answer.h"
#include "serving/core/generation.h"
#include "serving/core/request.h"

namespace inflight::openai {

// What an endpoint knows of its answer that its body does not say.
struct AnswerForm {
  bool is_chat = false;
  std::vector<std::string> echoes = {};  // [prompts] that texts begin with; empty: none
};

struct AnswerOptions {
  bool is_chat = false;
  bool is_stream = false;
  bool include_usage = false;  // of a stream
  bool logprobs = false;
  int top_logprobs = 0;
  int n = 1;        // of each prompt
  int best_of = 1;  // as many are made
  std::string model;
  int64_t created_s = 0;
  uint64_t seed = 0;
  std::vector<std::string> echoes;  // [prompts] that texts begin with; empty: none
  answer_parts::AnswerFormat format;
  std::shared_ptr<const answer_parts::BeginsIn> begins_in;  // read once the model answers
  std::shared_ptr<AccountShare> memory = {};                // that a whole answer is charged to
};

class Answer final : public AnswerSink {
 public:
  // `cancels`: of the requests, one for each prompt.
  Answer(AnswerOptions options, std::shared_ptr<const Tokenizer> tokenizer,
         std::vector<std::shared_ptr<serving::CancelToken>> cancels,
         std::shared_ptr<http_listener::HttpResponder> responder);

  void OnResponse(size_t prompt, const serving::Response& response) override;

 private:
  struct Call {
    std::string id, name, arguments;
  };
  // One of "choices".
  struct Choice {
    size_t num_bytes() const;  // of a whole answer

    bool has_begun = false;
    std::string text;       // of a whole answer
    std::string log_probs;  // of a whole answer of chat
    CompletionLogProbs completion_log_probs;
    std::unique_ptr<MessageParts> parts;  // null: the text is all content
    std::string reasoning;                // of a whole answer
    std::vector<Call> calls;              // of a whole answer; of a stream, counted
    std::string_view finish_reason;
    size_t counted_bytes = 0;  // num_bytes(), when it was last charged
    int num_tokens = 0;
    float cum_log_prob = 0;
  };
  struct Usage {
    int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  };

  void Take(size_t prompt, const serving::Generated& generated);
  void Keep(Choice& choice, const serving::Generated& generated);
  void AppendEvents(size_t index, Choice& choice, const serving::Generated& generated);
  void AppendDeltaEvent(std::string_view text);
  void AppendTextEvent(size_t index, Choice& choice, const serving::Generated& generated);
  answer_parts::Parts ReadParts(Choice& choice, const serving::Generated& generated);
  void AppendPartEvents(size_t index, Choice& choice, const serving::Generated& generated);
  void AppendDelta(Choice& choice, const answer_parts::Part& part);
  void AddCall(Choice& choice, const std::string& name) const;
  void KeepParts(Choice& choice, const serving::Generated& generated);
  void BeginEvent(size_t index);
  void PrepareDelta();
  void EndEvent(std::string_view receipt = {});
  std::string TakeReceipt(size_t prompt);
  void Fail(const Status& status);
  void End();
  void SendWhole();
  void AppendChoice(size_t index, Choice& choice, std::string& out) const;
  std::vector<size_t> Best(size_t prompt) const;
  size_t PromptOf(size_t index) const { return index / static_cast<size_t>(options_.best_of); }
  void AppendReceipts(std::string& out) const;
  void AppendUsage(std::string& out) const;
  std::string& events() { return sender_.text(); }

  const AnswerOptions options_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::vector<std::shared_ptr<serving::CancelToken>> cancels_;
  const std::shared_ptr<http_listener::HttpResponder> responder_;
  EventSender sender_;  // with mutex_ held

  std::mutex mutex_;
  std::string head_;  // of the object: {"id":...,"model":...
  // Of the events of a stream of chat that has one choice, what stands around their texts.
  std::string delta_begin_, delta_end_;
  std::vector<Choice> choices_;        // [prompts * best_of]
  std::vector<bool> is_counted_;       // [prompts] its prompt tokens are
  std::vector<std::string> receipts_;  // [prompts] in JSON, until they are told; empty: none
  Usage usage_;
  size_t num_ended_ = 0;  // of the prompts
  // Of a whole answer, while it grows.
  size_t held_bytes_ = 0;
  MemoryCharge charge_;
  bool is_done_ = false;
};

// An Answer to the body `asked`, for StartAnswer.
MakeSink AnswerTo(const Asked& asked, const ServedModel& served, AnswerForm form,
                  std::shared_ptr<http_listener::HttpResponder> responder);

}  // namespace inflight::openai
