// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/generation_call.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/status_macros.h"
#include "contract/llm_request.h"
#include "serving/core/run_model.h"
#include "serving/llm/answer_text.h"
#include "serving/llm/llm_call.h"
#include "serving/llm/row_batch.h"
#include "serving/pipelines/pipeline_guides.h"
#include "serving/pipelines/reasoning_budget.h"
#include "serving/pipelines/text_call.h"

namespace inflight::serving {
namespace {

class GenerationCall final : public LlmCall {
 public:
  GenerationCall(Model& pipeline, PipelineMembers its_members, Request request,
                 ResponseHandler handler)
      : LlmCall(pipeline, *its_members.llm, std::move(request), std::move(handler)),
        members(std::move(its_members)) {}

  // Until the request ends the caller keeps the pipeline, and so what it is made of.
  void Run(const std::shared_ptr<GenerationCall>& self) {
    if (request_.cancel->cancelled()) return Fail(Cancelled("request was cancelled"));
    auto prepared = Prepare();
    Status status = prepared.status();
    const std::shared_ptr<LlmModel> llm = members.llm;  // the answer may come before Start does
    if (status.ok()) status = llm->Start(*std::move(prepared), self);
    if (!status.ok()) Fail(status);
  }

  bool goes_on() const override { return !is_ended_; }
  bool has_stopped(int sequence) const override { return text_->HasStopped(sequence); }

  const PipelineMembers members;

 protected:
  bool Fill(inflight::Response& response, Response& out) override {
    if (text_->HasStopped(response.sequence_index) && !response.is_sequence_final) return false;
    const int64_t started_ns = llm_.clock().NowNs();
    auto generated = std::make_shared<Generated>();
    generated->text = std::move(text_->Append(response).front());
    generated->finish_reason = text_->finish_reasons().front();
    generated->stop_text = text_->stop_word(response.sequence_index);
    EndIfStopped(response);
    DropBehind(text_->num_read(), response);
    generated->response = std::move(response);
    generated->num_prompt_tokens = static_cast<int>(num_prompt_tokens);
    out.generated = std::move(generated);
    postprocessing_ns_ += llm_.clock().NowNs() - started_ns;
    ++num_responses_;
    return true;
  }

  void OnSuccess(const RequestSpan& llm) override {
    CountSteps();
    RequestSpan span = llm;
    span.received_ns = request_.received_ns;
    span.compute_start_ns = span.received_ns + (llm.compute_start_ns - llm.received_ns);
    span.compute_input_end_ns =
        span.compute_start_ns + (llm.compute_input_end_ns - llm.compute_start_ns);
    span.finished_ns = llm_.clock().NowNs();
    CountSuccess(request_, model_.statistics(), span);
    if (!request_.trace) return;
    request_.trace.AddSpan(span);
    TraceStep(request_.trace, *members.llm, request_.id, llm);
  }

  void OnFailure(const Status& status, int64_t finished_ns) override {
    CountSteps();
    CountFailure(request_, model_.statistics(), ReasonOf(status), request_.received_ns, finished_ns,
                 status.code() == StatusCode::kCancelled);
  }

 private:
  // Whether a step went on behind a stop word is chance: what it had there is told to nobody.
  static void DropBehind(size_t num_tokens, inflight::Response& response) {
    const size_t num_all = response.output_ids.size();
    if (num_tokens >= num_all) return;
    response.top_log_probs.resize(response.top_log_probs.size() / num_all * num_tokens);
    response.output_log_probs.resize(std::min(response.output_log_probs.size(), num_tokens));
    response.output_ids.resize(num_tokens);
  }

  // Nobody waits for what follows a stop word.
  void EndIfStopped(const inflight::Response& response) {
    if (response.is_final || is_ended_ || !text_->all_have_stopped()) return;
    is_ended_ = true;
    llm_.executor().Cancel(response.request_id);
  }

  void CountSteps() {
    if (tokenized_ns_ == 0) return;
    members.preprocessing->statistics().RequestSucceeded({.received_ns = started_ns_,
                                                          .compute_start_ns = started_ns_,
                                                          .compute_input_end_ns = started_ns_,
                                                          .compute_output_start_ns = tokenized_ns_,
                                                          .finished_ns = tokenized_ns_});
    if (num_responses_ == 0) return;
    members.postprocessing->statistics().RequestsSucceeded(
        {.compute_output_start_ns = postprocessing_ns_, .finished_ns = postprocessing_ns_},
        num_responses_);
  }

  // More than the model takes, or than leave the answer what it asks for: of that half a sequence
  // counts, so that a large bound of an answer costs no conversation.
  bool IsTooLong(const Generation& asked) const {
    const ExecutorLimits& limits = llm_.executor().limits();
    const int room = std::clamp(asked.llm.max_tokens, 1, std::max(limits.max_seq_len / 2, 1));
    return std::ssize(asked.llm.input_ids) >
           std::min(limits.max_input_len, limits.max_seq_len - room);
  }

  Status Tokenize(Generation& asked) {
    if (!asked.llm.input_ids.empty()) return Status::Ok();
    ASSIGN_OR_RETURN(const PromptText whole, asked.make_prompt());
    Status status = Encode(whole, asked);
    const bool may_be_shorter = asked.num_shorter_prompts > 0;
    if (may_be_shorter &&
        (status.ok() ? IsTooLong(asked) : status.reason() == Reason::kPromptTooLong))
      return Shorten(whole, asked);
    return status;
  }

  // The first of the shorter prompts that fits; else `whole`. One that the template refuses counts
  // as one that does not fit.
  Status Shorten(const PromptText& whole, Generation& asked) {
    std::optional<PromptText> best;
    size_t low = 0;
    size_t high = asked.num_shorter_prompts;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      auto shorter = asked.make_shorter_prompt(middle);
      if (shorter.ok() && Encode(*shorter, asked).ok() && !IsTooLong(asked)) {
        best = *std::move(shorter);
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return Encode(best ? *best : whole, asked);
  }

  Status Encode(const PromptText& prompt, Generation& asked) {
    const PreprocessingOptions& options = members.preprocessing->options();
    const ExecutorLimits& limits = llm_.executor().limits();
    if (options.max_prompt_bytes > 0 && prompt.text.size() > options.max_prompt_bytes)
      return InvalidArgument("the prompt has " + std::to_string(prompt.text.size()) +
                             " bytes, which are more tokens than the " +
                             std::to_string(limits.max_input_len) +
                             " that this model takes; shorten it")
          .WithReason(Reason::kPromptTooLong);
    ASSIGN_OR_RETURN(
        asked.llm.input_ids,
        options.tokenizer->Encode(prompt.text, prompt.add_special_tokens, prompt.plain_at));
    if (asked.llm.input_ids.empty()) return InvalidArgument("the prompt has no tokens");
    reasoning_end_ = prompt.guide_begins_after;
    reasoning_begin_ = prompt.guide_opening;
    reasoning_messages_ = prompt.reasoning_messages;
    return Status::Ok();
  }

  // What the prompt leaves.
  Status FitToModel(const Generation& asked, inflight::Request& request) const {
    const ExecutorLimits& limits = llm_.executor().limits();
    const auto num_tokens = static_cast<int>(request.input_ids.size());
    if (num_tokens > limits.max_input_len)
      return InvalidArgument("the prompt has " + std::to_string(num_tokens) + " tokens, " +
                             std::to_string(num_tokens - limits.max_input_len) + " more than the " +
                             std::to_string(limits.max_input_len) +
                             " that this model takes; shorten it")
          .WithReason(Reason::kPromptTooLong);
    if (request.max_tokens == 0) request.max_tokens = std::numeric_limits<int>::max();
    if (!asked.ignores_model_ends) {
      std::vector<TokenId> ends = members.llm->end_ids();
      const auto eos = members.preprocessing->tokenizer().eos_id();
      if (eos && *eos < limits.vocab_size) ends.push_back(*eos);
      for (const TokenId id : ends)
        if (std::ranges::find(request.end_ids, id) == request.end_ids.end())
          request.end_ids.push_back(id);
    }
    if (!asked.penalizes_prompt) request.sampling.prompt_ignore_length = num_tokens;
    return contract::FitToEngine(request, limits, members.llm->defaults());
  }

  // What ends reasoning is forced where its tokens are used up.
  Status AddBudget(const Generation& asked, inflight::Request& request) const {
    if (!asked.max_reasoning_tokens || reasoning_end_.empty()) return Status::Ok();
    const auto tokenizer = members.postprocessing->tokenizer();
    const auto ids_of = [&](std::string_view end) -> Result<std::vector<TokenId>> {
      ASSIGN_OR_RETURN(std::vector<TokenId> ids,
                       tokenizer->Encode(end, /*add_special_tokens=*/false));
      if (ids.empty()) return Internal("what ends reasoning has no tokens");
      return ids;
    };
    ReasoningBudget budget{.max_tokens = *asked.max_reasoning_tokens,
                           .begin = reasoning_begin_,
                           .end = reasoning_end_,
                           .has_begun = reasoning_begin_.empty()};
    if (reasoning_messages_) {
      budget.end = reasoning_messages_->end;
      budget.begin_again = reasoning_messages_->next;
      ASSIGN_OR_RETURN(budget.end_ids, ids_of(reasoning_messages_->cut));
      ASSIGN_OR_RETURN(budget.end_again_ids, ids_of(reasoning_messages_->cut_again));
    } else {
      ASSIGN_OR_RETURN(budget.end_ids, ids_of(reasoning_end_));
    }
    request.guide = GuideByBudget(
        std::move(budget), members.llm->executor().limits().vocab_size,
        [tokenizer](TokenId id) {
          return tokenizer->IsSpecial(id) ? tokenizer->Decode(std::span(&id, 1), false)
                                          : tokenizer->TokenBytes(id);
        },
        std::move(request.guide));
    return Status::Ok();
  }

  // What the guide is behind the end of the prompt.
  GuideSpec SpecOf(const Generation::Guided& guided) const {
    GuideSpec spec = guided.spec;
    if (!guided.may_begin_later) return spec;
    if (!guided.as_messages) {
      spec.begins_after = reasoning_end_;
    } else if (!reasoning_end_.empty()) {
      spec = *guided.as_messages;
      if (!reasoning_begin_.empty()) spec.begins_after.clear();
    }
    return spec;
  }

  Status AddGuide(const Generation& asked, inflight::Request& request) const {
    if (!asked.guided) return Status::Ok();
    const Generation::Guided& guided = *asked.guided;
    const bool has_opening = guided.may_begin_later && !guided.as_messages;
    ASSIGN_OR_RETURN(request.guide,
                     GuideOf(members, {.spec = SpecOf(guided), .field = guided.field},
                             asked.shown_special_tokens, request_.memory,
                             has_opening ? reasoning_begin_ : std::string()));
    return Status::Ok();
  }

  Result<inflight::Request> Prepare() {
    const Clock& clock = llm_.clock();
    Generation& asked = *request_.generation;
    started_ns_ = clock.NowNs();
    RETURN_IF_ERROR(Tokenize(asked));
    tokenized_ns_ = llm_started_ns = clock.NowNs();
    inflight::Request request = std::move(asked.llm);
    RETURN_IF_ERROR(FitToModel(asked, request));
    RETURN_IF_ERROR(AddGuide(asked, request));
    RETURN_IF_ERROR(AddBudget(asked, request));
    // Its texts are looked at as they come, so that it ends with the first stop word.
    request.streaming = request.streaming || !asked.stop_texts.empty();
    streaming = request.streaming;
    text_.emplace(
        AnswerTextOptions{.tokenizer = members.postprocessing->tokenizer(),
                          .shown_special_tokens = std::move(asked.shown_special_tokens),
                          .num_sequences = request.sampling.num_return_sequences.value_or(1),
                          .stop_words = std::move(asked.stop_texts),
                          .trims_stop_words = true});
    return request;
  }

  std::string reasoning_begin_, reasoning_end_;  // as PromptText has them, and these
  std::optional<PromptText::ReasoningMessages> reasoning_messages_;
  std::optional<AnswerText> text_;
  bool is_ended_ = false;  // its texts have stopped: the executor was told
  int64_t started_ns_ = 0;
  int64_t tokenized_ns_ = 0;       // 0: it failed
  int64_t postprocessing_ns_ = 0;  // of all texts
  uint64_t num_responses_ = 0;
};

}  // namespace

std::shared_ptr<const TextModel> TextModelOf(const PipelineMembers& members) {
  const PreprocessingOptions& options = members.preprocessing->options();
  return std::make_shared<const TextModel>(TextModel{.tokenizer = options.tokenizer,
                                                     .limits = members.llm->executor().limits(),
                                                     .chat_template = options.chat_template,
                                                     .no_chat_template = options.no_chat_template,
                                                     .defaults = options.defaults,
                                                     .adapters = members.llm->adapter_names()});
}

void Generate(Model& pipeline, const PipelineMembers& members, Request request,
              ResponseHandler handler) {
  if (request.received_ns == 0) request.received_ns = members.llm->clock().NowNs();
  size_t text_bytes = request.generation->text_bytes;
  if (const auto& guided = request.generation->guided;
      guided && (guided->may_begin_later ||
                 IsNewGuide(members, guided->spec, request.generation->shown_special_tokens)))
    text_bytes += kLongWorkBytes;
  const bool has_to_read = members.llm->HasToRead(request);
  auto call =
      std::make_shared<GenerationCall>(pipeline, members, std::move(request), std::move(handler));
  BeginCall(std::move(call), text_bytes, has_to_read, members.preprocessing->text_pool(),
            [](const std::shared_ptr<GenerationCall>& begun) { begun->Run(begun); });
}

}  // namespace inflight::serving
