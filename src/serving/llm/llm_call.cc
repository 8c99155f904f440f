// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/llm_call.h"

#include <new>
#include <utility>

#include "base/no_memory_left.h"
#include "serving/llm/row_batch.h"

namespace inflight::serving {
namespace {

// Failures of the executor after it accepted the request, in the words that clients know.
Status ExecutorError(const inflight::Response& response) {
  return response.status.WithMessage("Executor failed process requestId " +
                                     std::to_string(response.request_id) +
                                     " due to the following error: " + response.status.message());
}

}  // namespace

Response FinalResponse(const Model& model, const Request& request, Status status) {
  Response response;
  response.model_name = model.name();
  response.model_version = model.version();
  response.id = request.id;
  response.status = std::move(status);
  response.is_final = true;
  return response;
}

FailureReason ReasonOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kResourceExhausted:
      return FailureReason::kRejected;
    case StatusCode::kCancelled:
      return FailureReason::kCanceled;
    default:
      return FailureReason::kBackend;
  }
}

Returns Returns::Of(const contract::LlmRequest& parsed) {
  const OutputOptions& output = parsed.request.output;
  return {.log_probs = output.return_log_probs,
          .generation_logits = output.return_generation_logits,
          .num_top_log_probs = output.num_top_log_probs,
          .facts = parsed.facts};
}

LlmCall::LlmCall(Model& model, LlmModel& llm, Request request, ResponseHandler handler)
    : model_(model), llm_(llm), request_(std::move(request)), handler_(std::move(handler)) {}

void LlmCall::OnResponse(inflight::Response response) {
  const bool is_final = response.is_final;
  try {
    if (!has_lost_) return Answer(std::move(response));
  } catch (const std::bad_alloc&) {  // what it said is missing: nothing may follow but the end
    has_lost_ = true;
    request_.cancel->Cancel();
  }
  if (is_final) Fail(NoMemoryLeft());
}

void LlmCall::Answer(inflight::Response response) {
  if (!response.status.ok()) {
    llm_.NoteExecutorError();
    return Fail(ExecutorError(response));
  }
  if (response.is_final && response.finish_reason == FinishReason::kTimedOut) {
    // Either it was never scheduled, which clients know as unavailable, or took too long.
    const bool was_queued = response.times.first_scheduled_ns == 0;
    constexpr char kExpired[] = "Request timeout expired";
    return Fail(was_queued ? Unavailable(kExpired) : DeadlineExceeded(kExpired));
  }
  if (response.is_final && request_.cancel->cancelled()) {
    return Fail(Cancelled("request was cancelled"));
  }
  if (streaming && llm_.defaults().repeats_context_logits) RepeatContextLogits(response);
  const int64_t arrived_ns = llm_.clock().NowNs();
  if (receipt) receipt->Add(response, !has_stopped(response.sequence_index));
  response.beams.resize(num_beams_);  // where bans left fewer
  Observe(response, arrived_ns);

  Response out;
  out.model_name = model_.name();
  out.model_version = model_.version();
  out.id = request_.id;
  out.is_final = response.is_final;
  out.is_cut_short = response.finish_reason == FinishReason::kCancelled;
  if (!lora_name.empty()) out.parameters[std::string(kLoraName)] = lora_name;
  if (seed_by_chance) {  // once, so that the request can be sent again
    out.parameters["random_seed"] = static_cast<int64_t>(*seed_by_chance);
    seed_by_chance.reset();
  }
  const bool is_sent = Fill(response, out);
  if (receipt && response.is_final)
    out.parameters[std::string(kReceiptParameter)] =
        receipt->Finish([this](int sequence) { return has_stopped(sequence); });
  if (!response.is_final) {
    if (is_sent) handler_(std::move(out));
    return;
  }

  // Filling is the LLM's own output only when it answers itself; else it is the next step's work.
  const bool is_own = &model_ == &llm_;
  const RequestSpan span = SpanOf(response.times, is_own ? llm_.clock().NowNs() : arrived_ns);
  CountSuccess(request_, llm_.statistics(), span);
  llm_.statistics().ObserveFinished({.num_prompt_tokens = num_prompt_tokens,
                                     .num_output_tokens = num_output_tokens_,
                                     .latency_ns = span.finished_ns - request_.received_ns,
                                     .reason = has_stopped(response.sequence_index)
                                                   ? FinishReason::kStopWords
                                                   : response.finish_reason});
  if (is_own) request_.trace.AddSpan(span);
  request_.trace.SetGeneration({.num_input_tokens = num_prompt_tokens,
                                .num_output_tokens = num_output_tokens_,
                                .finish_reason = FinishReasonName(response.finish_reason)});
  OnSuccess(span);
  Finish();
  if (!ends_apart) return handler_(std::move(out));
  Response end = FinalResponse(model_, request_, Status::Ok());
  out.is_final = false;
  handler_(std::move(out));
  handler_(std::move(end));
}

void LlmCall::Fail(const Status& status, FailureReason reason) {
  const int64_t now_ns = llm_.clock().NowNs();
  if (llm_started_ns != 0) {
    CountFailure(request_, llm_.statistics(), reason, llm_started_ns, now_ns,
                 status.code() == StatusCode::kCancelled);
  }
  OnFailure(status, now_ns);
  Finish();
  const auto& row = request_.row;
  handler_(FinalResponse(
      model_, request_,
      Describe(row ? status.WithPrefix("row " + std::to_string(row->index)) : status)));
}

// The executor says them once; upstream's stream has them in each response.
void LlmCall::RepeatContextLogits(inflight::Response& response) {
  if (response.context_logits.num_rows > 0) {
    if (!response.is_final) context_logits_ = response.context_logits;
  } else {
    response.context_logits = context_logits_;
  }
}

void LlmCall::ExpectSequences(const SamplingParams& sampling) {
  const bool has_beams = sampling.beam_width > 1;
  const auto num_returned =
      static_cast<size_t>(sampling.num_return_sequences.value_or(sampling.beam_width));
  if (has_beams) num_beams_ = num_returned;
  last_token_ns_.resize(has_beams ? 1 : num_returned);
}

void LlmCall::Observe(const inflight::Response& response, int64_t now_ns) {
  auto num_tokens = static_cast<int64_t>(response.output_ids.size());
  if (response.is_final) {
    for (const Beam& beam : response.beams) num_tokens += std::ssize(beam.output_ids);
  }
  num_output_tokens_ += num_tokens;
  if (request_.tally != nullptr) {
    const int64_t first_ns = response.times.first_token_ns;
    request_.tally->AddOutput(num_tokens, !streaming && first_ns != 0 ? first_ns : now_ns);
  }
  const bool has_tokens = !response.output_ids.empty() || num_beams_ > 0;
  int64_t& last_token_ns = last_token_ns_[static_cast<size_t>(response.sequence_index)];
  const auto observe_ttft = [&](int64_t ns) {
    llm_.statistics().ObserveTtft(ns);
    if (&model_ != &llm_) model_.statistics().ObserveTtft(ns);
  };
  if (streaming && has_tokens) {
    if (!std::exchange(has_tokens_, true)) {
      observe_ttft(now_ns - request_.received_ns);
    } else if (last_token_ns != 0) {
      llm_.statistics().ObserveItl(now_ns - last_token_ns);
      if (&model_ != &llm_) model_.statistics().ObserveItl(now_ns - last_token_ns);
    }
    last_token_ns = now_ns;
  }
  if (!response.is_final) return;
  const RequestTimes& times = response.times;
  if (!streaming && times.first_token_ns != 0) {
    observe_ttft(times.first_token_ns - request_.received_ns);
  }
  if (times.first_scheduled_ns != 0) {
    const int64_t queue_ns = times.first_scheduled_ns - times.enqueued_ns;
    llm_.statistics().ObserveQueue(queue_ns);
    if (&model_ != &llm_) model_.statistics().ObserveQueue(queue_ns);
  }
}

// A span has its queue first, while here parsing comes before it: the two are swapped, so that each
// keeps its length and `compute_input_end` is when the first step began.
RequestSpan LlmCall::SpanOf(const RequestTimes& times, int64_t now_ns) const {
  const int64_t scheduled = times.first_scheduled_ns != 0 ? times.first_scheduled_ns : enqueued_ns;
  const int64_t enqueued = times.enqueued_ns != 0 ? times.enqueued_ns : enqueued_ns;
  RequestSpan span;
  span.received_ns = llm_started_ns;
  span.compute_start_ns = llm_started_ns + (scheduled - enqueued);
  span.compute_input_end_ns = scheduled;
  span.compute_output_start_ns = times.last_token_ns != 0 ? times.last_token_ns : now_ns;
  span.finished_ns = now_ns;
  return span;
}

contract::RequestFacts LlmCall::Facts(std::span<const FinishReason> finish_reasons) const {
  return {.asked = returns.facts,
          .num_input_tokens = static_cast<int>(num_prompt_tokens),
          .block_size = llm_.executor().limits().block_size,
          .finish_reasons = finish_reasons};
}

void LlmCall::Finish() {
  tokens.Settle(num_prompt_tokens + num_output_tokens_);
  llm_.active().Remove(*this);
}

}  // namespace inflight::serving
