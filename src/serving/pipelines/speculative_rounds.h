// SPDX-License-Identifier: Apache-2.0
// A request of BLS that two LLMs answer, as upstream's script has them: in each round the draft
// model proposes tokens and the LLM judges them in one step (docs/reference/speculation.md, "Two
// models").
//
// Threads: Start by the caller of Infer; then one response of an executor after another, each on a
// stream thread of its own.
#pragma once

#include <memory>

#include "serving/llm/llm_call.h"

namespace inflight::serving {

class SpeculativeRounds final : public ResponseSink,
                                public std::enable_shared_from_this<SpeculativeRounds> {
 public:
  struct Options {
    int num_draft_tokens = 0;       // of a round, at most; > 0
    bool use_draft_logits = false;  // accept by them
  };

  // `call` gets what the rounds have made together, as from one request. Errors are the call's to
  // report; kInvalidArgument where both models have no vocabulary in common, or the request cannot
  // be told in rounds.
  static Status Start(inflight::Request request, const std::shared_ptr<LlmCall>& call,
                      std::shared_ptr<LlmModel> llm, std::shared_ptr<LlmModel> draft,
                      const Options& options);

  void OnResponse(inflight::Response response) override;

 private:
  SpeculativeRounds(inflight::Request request, std::shared_ptr<LlmCall> call,
                    std::shared_ptr<LlmModel> llm, std::shared_ptr<LlmModel> draft,
                    const Options& options);

  int NumLeft() const;            // tokens that the answer may still have
  inflight::Request Ask() const;  // for what follows all tokens so far
  Status Propose();
  Status Judge(inflight::Response proposal);
  void Take(inflight::Response response);
  void End(FinishReason reason);  // with the answer so far
  void CountRound(LlmModel& model, const RequestTimes& times) const;

  const inflight::Request request_;
  const std::shared_ptr<LlmCall> call_;
  const std::shared_ptr<LlmModel> llm_;
  const std::shared_ptr<LlmModel> draft_;
  const Options options_;
  std::vector<TokenId> tokens_;  // prompt and answer so far
  // Where the answer so far stands in the guide; null: at its beginning, or there is no guide.
  std::shared_ptr<const GuideState> place_;
  bool is_proposing_ = false;  // the draft model answers next
  inflight::Response answer_;  // so far, or since the last one of a stream
};

}  // namespace inflight::serving
