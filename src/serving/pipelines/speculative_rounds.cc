// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/speculative_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/status_macros.h"
#include "serving/pipelines/continued_guide.h"

namespace inflight::serving {
namespace {

// What does not go in rounds, and models that do not go together.
Status Check(const inflight::Request& request, LlmModel& llm, LlmModel& draft) {
  const SamplingParams& sampling = request.sampling;
  if (sampling.beam_width > 1)
    return InvalidArgument(fmt::format(
        "Can't use speculative decoding with beam search. beam_width is {}: leave it or "
        "num_draft_tokens out",
        sampling.beam_width));
  if (sampling.num_return_sequences.value_or(1) > 1)
    return InvalidArgument("num_return_sequences",
                           fmt::format("got {}, with num_draft_tokens only 1 is supported",
                                       *sampling.num_return_sequences));
  if (request.output.return_context_logits)
    return InvalidArgument("context logits are not supported with speculative decoding");
  if (sampling.top_p_decay)
    return Unimplemented("top_p_decay", "is not supported with num_draft_tokens; leave one out");
  if (request.prompt_table != nullptr)  // of one model's embeddings
    return Unimplemented("prompt_embedding_table",
                         "is not supported with num_draft_tokens; leave one out");
  const int vocab_size = llm.executor().limits().vocab_size;
  const int of_draft = draft.executor().limits().vocab_size;
  if (vocab_size != of_draft)
    return InvalidArgument(fmt::format(
        "num_draft_tokens: the draft model '{}' has a vocabulary of {} tokens, '{}' one "
        "of {}; they need one tokenizer",
        draft.name(), of_draft, llm.name(), vocab_size));
  return Status::Ok();
}

template <typename T>
void Append(std::vector<T>&& from, std::vector<T>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

}  // namespace

SpeculativeRounds::SpeculativeRounds(inflight::Request request, std::shared_ptr<LlmCall> call,
                                     std::shared_ptr<LlmModel> llm, std::shared_ptr<LlmModel> draft,
                                     const Options& options)
    : request_(std::move(request)),
      call_(std::move(call)),
      llm_(std::move(llm)),
      draft_(std::move(draft)),
      options_(options),
      tokens_(request_.input_ids) {}

Status SpeculativeRounds::Start(inflight::Request request, const std::shared_ptr<LlmCall>& call,
                                std::shared_ptr<LlmModel> llm, std::shared_ptr<LlmModel> draft,
                                const Options& options) {
  RETURN_IF_ERROR(Check(request, *llm, *draft));
  RETURN_IF_ERROR(llm->Admit(*call, &request));
  if (llm->issues_receipts()) call->receipt.emplace("num_draft_tokens");
  const std::shared_ptr<SpeculativeRounds> rounds(
      new SpeculativeRounds(std::move(request), call, std::move(llm), std::move(draft), options));
  rounds->llm_->active().Add(*call, 0);  // a stop finds it while the draft model works
  return rounds->Propose();
}

int SpeculativeRounds::NumLeft() const {
  const auto num_generated = static_cast<int>(tokens_.size() - request_.input_ids.size());
  return request_.max_tokens - num_generated;
}

inflight::Request SpeculativeRounds::Ask() const {
  inflight::Request ask = request_;
  const auto num_generated = static_cast<int>(tokens_.size() - request_.input_ids.size());
  ask.input_ids = tokens_;
  ask.streaming = false;
  ask.sampling.min_tokens = std::max(0, ask.sampling.min_tokens - num_generated);
  if (place_ != nullptr) ask.guide = ContinuedGuide(request_.guide, place_);
  return ask;
}

// The LLM adds a token of its own to what it accepts.
Status SpeculativeRounds::Propose() {
  const ExecutorLimits& limits = draft_->executor().limits();
  const auto length = static_cast<int>(tokens_.size());
  const int most = std::min({options_.num_draft_tokens, NumLeft() - 1,
                             llm_->executor().limits().max_draft_len, limits.max_seq_len - length});
  if (options_.num_draft_tokens > llm_->executor().limits().max_draft_len) {
    return InvalidArgument(fmt::format(
        "Draft tokens length ({}) exceeds maximum draft tokens length ({}). Send a "
        "smaller num_draft_tokens, or load '{}' with a larger max_draft_len",
        options_.num_draft_tokens, llm_->executor().limits().max_draft_len, llm_->name()));
  }
  if (most < 1 || length > limits.max_input_len) return Judge({});
  inflight::Request ask = Ask();
  ask.max_tokens = most;
  ask.lora.reset();  // is of the other model, which judges with it
  ask.output = {.return_generation_logits = options_.use_draft_logits};
  is_proposing_ = true;
  return draft_->Enqueue(std::move(ask), shared_from_this(), *call_);
}

Status SpeculativeRounds::Judge(inflight::Response proposal) {
  is_proposing_ = false;
  inflight::Request ask = Ask();
  ask.draft_ids = std::move(proposal.output_ids);
  ask.max_tokens = static_cast<int>(ask.draft_ids.size()) + 1;
  if (options_.use_draft_logits && !ask.draft_ids.empty()) {
    ask.draft_logits =
        std::make_shared<std::vector<float>>(std::move(proposal.generation_logits.values));
  }
  return llm_->Enqueue(std::move(ask), shared_from_this(), *call_);
}

void SpeculativeRounds::OnResponse(inflight::Response response) {
  const bool has_failed =
      !response.status.ok() || response.finish_reason == FinishReason::kTimedOut;
  try {
    // Where its own drafts led the draft model finds nothing that may come.
    const bool is_stuck = is_proposing_ && response.status.field() == "guide";
    if (has_failed && !is_stuck) return call_->OnResponse(std::move(response));
    if (!is_proposing_) return Take(std::move(response));
    if (response.finish_reason == FinishReason::kCancelled) return End(FinishReason::kCancelled);
    CountRound(*draft_, response.times);
    if (is_stuck) response.output_ids.clear();
    if (call_->stopped) return End(FinishReason::kCancelled);
    if (const Status status = Judge(std::move(response)); !status.ok()) call_->Fail(status);
  } catch (const std::exception& e) {  // such as bad_alloc
    call_->Fail(Caught("unexpected error", e));
  }
}

// What the LLM accepted, and its own token.
void SpeculativeRounds::Take(inflight::Response response) {
  Append(std::vector<TokenId>(response.output_ids), &tokens_);
  if (request_.guide != nullptr) {
    std::unique_ptr<GuideState> place =
        place_ == nullptr ? request_.guide->Begin() : place_->Clone();
    for (const TokenId token : response.output_ids) place->Accept(token);
    place_ = std::move(place);
  }
  const bool is_over = response.finish_reason != FinishReason::kLength || NumLeft() <= 0;
  const bool is_first = answer_.request_id == 0;
  answer_.request_id = response.request_id;
  if (is_first) {
    answer_.num_cached_tokens = response.num_cached_tokens;
    answer_.times = response.times;
  }
  if (const int64_t ns = response.times.last_token_ns; ns != 0) answer_.times.last_token_ns = ns;
  answer_.cum_log_prob += response.cum_log_prob;
  answer_.num_draft_tokens += response.num_draft_tokens;
  answer_.num_accepted_draft_tokens += response.num_accepted_draft_tokens;
  Append(std::move(response.output_ids), &answer_.output_ids);
  Append(std::move(response.output_log_probs), &answer_.output_log_probs);
  Append(std::move(response.top_log_probs), &answer_.top_log_probs);
  if (response.generation_logits.num_rows > 0)
    answer_.generation_logits.vocab_size = response.generation_logits.vocab_size;
  answer_.generation_logits.num_rows += response.generation_logits.num_rows;
  Append(std::move(response.generation_logits.values), &answer_.generation_logits.values);
  if (is_over) return End(response.finish_reason);
  if (call_->stopped) return End(FinishReason::kCancelled);
  CountRound(*llm_, response.times);
  if (request_.streaming) {
    inflight::Response part = answer_;
    part.num_draft_tokens = part.num_accepted_draft_tokens = 0;
    call_->OnResponse(std::move(part));
    answer_.output_ids.clear();
    answer_.output_log_probs.clear();
    answer_.top_log_probs.clear();
    answer_.generation_logits = {};
    if (!call_->goes_on()) return End(FinishReason::kCancelled);  // its texts have stopped
  }
  if (const Status status = Propose(); !status.ok()) call_->Fail(status);
}

void SpeculativeRounds::End(FinishReason reason) {
  answer_.is_final = answer_.is_sequence_final = true;
  answer_.finish_reason = reason;
  call_->OnResponse(std::move(answer_));
}

// Each request that a model answered counts; the last one of the LLM is counted by the call.
void SpeculativeRounds::CountRound(LlmModel& model, const RequestTimes& times) const {
  model.statistics().RequestSucceeded({.received_ns = times.enqueued_ns,
                                       .compute_start_ns = times.first_scheduled_ns,
                                       .compute_input_end_ns = times.first_scheduled_ns,
                                       .compute_output_start_ns = times.last_token_ns,
                                       .finished_ns = times.last_token_ns});
}

}  // namespace inflight::serving
