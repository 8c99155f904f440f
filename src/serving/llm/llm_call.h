// SPDX-License-Identifier: Apache-2.0
// One request on its way through an executor: turns its responses into the model's, measures them,
// and ends exactly once.
//
// Threads: the executor's stream thread calls OnResponse; Fail is called instead of it, by the
// thread that could not start the request.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/client.h"
#include "base/memory_account.h"
#include "contract/llm_request.h"
#include "inflight/executor.h"
#include "receipts/issuer.h"
#include "serving/core/request.h"
#include "serving/llm/llm_model.h"

namespace inflight::serving {

// A final response without outputs: with an error for the error and cancel paths of every model.
Response FinalResponse(const Model& model, const Request& request, Status status);
FailureReason ReasonOf(const Status& status);

// What a request asked its answers to have.
struct Returns {
  bool log_probs = false;
  bool generation_logits = false;
  int num_top_log_probs = 0;
  contract::FactsAsked facts;

  static Returns Of(const contract::LlmRequest& parsed);
};

class LlmCall : public ResponseSink {
 public:
  LlmCall(Model& model, LlmModel& llm, Request request, ResponseHandler handler);

  void OnResponse(inflight::Response response) final;
  // Before or instead of the executor's final response.
  void Fail(const Status& status) { Fail(status, ReasonOf(status)); }

  const Request& request() const { return request_; }
  bool is_of(const LlmModel& llm) const { return &llm_ == &llm; }
  // False when what follows in its stream has no use any more.
  virtual bool goes_on() const { return true; }
  // Whether a sequence's text has ended, so that no client gets what follows.
  virtual bool has_stopped(int /*sequence*/) const { return false; }

  // Set before Start.
  Returns returns;
  bool streaming = false;
  bool ends_apart = false;     // the final mark goes out in an empty response of its own
  int64_t llm_started_ns = 0;  // the LLM's share of the request began
  int64_t enqueued_ns = 0;
  int64_t num_prompt_tokens = 0;
  std::string prompt_contents;             // of contract::PlacePromptTable
  std::optional<uint64_t> seed_by_chance;  // the first answer says it
  std::optional<receipts::Draft> receipt;  // that the answer carries; none: it has none
  std::string lora_name;                   // of the adapter, where it has one: each answer says it
  ClientTokens tokens;                     // that its client may take; settled at the end
  MemoryCharge held;                       // what is held for it, beside its request
  void ExpectSequences(const SamplingParams& sampling);
  mutable bool finished = false;              // guarded by ActiveRequests
  mutable std::atomic<bool> stopped = false;  // by its id, while it was there

 protected:
  // Adds the outputs of one executor response, whose vectors it may take. False: it is not sent,
  // unless it is the final one.
  virtual bool Fill(inflight::Response& response, Response& out) = 0;
  // The texts of errors as this model spells them.
  virtual Status Describe(const Status& status) const { return status; }
  // Statistics of the models around the LLM; `llm` is the LLM's own share.
  virtual void OnSuccess(const RequestSpan& /*llm*/) {}
  virtual void OnFailure(const Status& /*status*/, int64_t /*finished_ns*/) {}

  int RowIndex() const { return request_.row ? request_.row->index : 0; }
  // `finish_reasons`: where they are not those that the response says.
  contract::RequestFacts Facts(std::span<const FinishReason> finish_reasons = {}) const;

  Model& model_;
  LlmModel& llm_;
  Request request_;

 private:
  void Answer(inflight::Response response);
  void RepeatContextLogits(inflight::Response& response);
  void Fail(const Status& status, FailureReason reason);
  void Observe(const inflight::Response& response, int64_t now_ns);
  RequestSpan SpanOf(const RequestTimes& times, int64_t now_ns) const;
  void Finish();

  ResponseHandler handler_;
  bool has_lost_ = false;  // a response, for want of memory
  bool has_tokens_ = false;
  size_t num_beams_ = 0;                      // that each response has; 0 without beam search
  std::vector<int64_t> last_token_ns_ = {0};  // [num_sequences] 0 until the first
  int64_t num_output_tokens_ = 0;
  LogitsRows context_logits_;  // of the first response, where each repeats them
};

}  // namespace inflight::serving
