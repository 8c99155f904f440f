// SPDX-License-Identifier: Apache-2.0
#include "serving/ensemble/ensemble_run.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "serving/core/run_model.h"
#include "serving/core/validate.h"

namespace inflight::serving {
namespace {

// Steps that wait for each other do not wait for ever.
constexpr std::chrono::seconds kMaxWait{300};

template <typename Ios>
size_t RankOf(const ::inference::ModelConfig& config, const Ios& ios, const std::string& name) {
  for (const auto& io : ios) {
    if (io.name() != name) continue;
    return static_cast<size_t>(io.dims_size()) + (config.max_batch_size() > 0 ? 1 : 0);
  }
  return 0;
}

// Adds or takes away a batch of one, where one side batches and the other does not.
void FitRank(size_t rank, Tensor& tensor) {
  if (tensor.shape.size() == rank + 1 && tensor.shape.front() == 1) {
    tensor.shape.erase(tensor.shape.begin());
  } else if (tensor.shape.size() + 1 == rank) {
    tensor.shape.insert(tensor.shape.begin(), 1);
  }
}

std::vector<std::string> OutputNames(const ::inference::ModelConfig& config,
                                     const Request& request) {
  if (!request.requested_outputs.empty()) return request.requested_outputs;
  std::vector<std::string> names;
  for (const auto& output : config.output()) names.push_back(output.name());
  return names;
}

// Of what a step has for itself of what the request says beside tensors, until it has answered.
// Null: that is nothing.
Result<std::shared_ptr<const MemoryCharge>> ChargeOfStep(const Request& request) {
  const size_t bytes =
      request.id.size() + request.sequence_name.size() + BytesOfParameters(request.parameters);
  if (bytes == 0) return std::shared_ptr<const MemoryCharge>();
  MemoryCharge charge(request.memory);
  RETURN_IF_ERROR(charge.Resize(bytes));
  return std::make_shared<const MemoryCharge>(std::move(charge));
}

}  // namespace

EnsembleRun::EnsembleRun(std::shared_ptr<EnsembleModel> model, Request request,
                         ResponseHandler handler)
    : model_(std::move(model)),
      request_(std::move(request)),
      handler_(std::move(handler)),
      wanted_(OutputNames(model_->config(), request_)),
      steps_(model_->graph_.StepsFor(wanted_)),
      max_running_(model_->config().ensemble_scheduling().max_inflight_requests()),
      started_ns_(model_->clock_.NowNs()),
      tensors_(model_->graph_, steps_, wanted_) {
  if (max_running_ == 0) return;
  for (const size_t step : steps_) states_[step].streamed = StreamedFrom(step);
}

void EnsembleRun::Start() {
  request_.trace.Mark("QUEUE_START", started_ns_);
  {
    std::lock_guard lock(mutex_);
    for (const auto& input : model_->config().input()) {
      const Tensor* given = request_.FindInput(input.name());
      tensors_.Set(input.name(), 0, given == nullptr ? std::nullopt : std::optional(*given));
    }
    CollectLocked({});
  }
  request_.cancel->SetListener([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Cancel();
  });
  Flush();
}

void EnsembleRun::Cancel() {
  std::vector<std::shared_ptr<CancelToken>> running;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [step, state] : states_) {
      for (const auto& [round, token] : state.running) running.push_back(token);
    }
  }
  has_room_.notify_all();
  for (const auto& token : running) token->Cancel();
}

void EnsembleRun::OnStepResponse(size_t step, Round round, Response response) {
  const bool is_final = response.is_final;
  {
    std::unique_lock lock(mutex_);
    if (response.status.ok() && !response.outputs.empty()) WaitForRoomLocked(lock, step);
    const std::set<Round> changed = StoreLocked(step, round, response);
    if (is_final) {
      --in_flight_;
      states_[step].running.erase(round);
      IssueHeldLocked(step);
    }
    CollectLocked(changed);
  }
  has_room_.notify_all();
  Flush();
}

// Those of the steps behind it that take what it streams.
std::set<size_t> EnsembleRun::StreamedFrom(size_t step) const {
  std::set<std::string> reached;
  std::set<size_t> streamed;
  for (const auto& [output, tensor] : model_->graph_.steps[step].outputs) reached.insert(tensor);
  for (bool has_grown = true; has_grown;) {
    has_grown = false;
    for (const size_t index : steps_) {
      const EnsembleStep& next = model_->graph_.steps[index];
      const bool takes = std::any_of(next.inputs.begin(), next.inputs.end(), [&](const auto& in) {
        return model_->graph_.Streams(in.second) && reached.contains(in.second);
      });
      if (!takes || !streamed.insert(index).second) continue;
      for (const auto& [output, tensor] : next.outputs) reached.insert(tensor);
      has_grown = true;
    }
  }
  return streamed;
}

bool EnsembleRun::HasRoomLocked(size_t step) const {
  const std::set<size_t>& streamed = states_.at(step).streamed;
  return std::all_of(streamed.begin(), streamed.end(), [this](size_t next) {
    const StepState& state = states_.at(next);
    return state.running.size() < max_running_ && state.held.empty();
  });
}

void EnsembleRun::WaitForRoomLocked(std::unique_lock<std::mutex>& lock, size_t step) {
  if (max_running_ == 0 || !model_->graph_.steps[step].model->decoupled()) return;
  const bool has_room = has_room_.wait_for(lock, kMaxWait, [&] {
    return !error_.ok() || request_.cancel->cancelled() || HasRoomLocked(step);
  });
  if (!has_room) {
    logging::Warning("steps of an ensemble take no more of a stream; it goes on beyond the limit",
                     {{"model", model_->name()}, {"max_inflight_requests", max_running_}});
  }
}

std::set<EnsembleRun::Round> EnsembleRun::StoreLocked(size_t index, Round round,
                                                      Response& response) {
  const EnsembleStep& step = model_->graph_.steps[index];
  if (!response.status.ok()) {
    if (error_.ok()) error_ = FailLocked(response.status);
    return {};
  }
  const bool is_bare_end = step.model->decoupled() && response.is_final &&
                           response.outputs.empty() && !response.has_answer;
  if (is_bare_end || !error_.ok()) return {};
  is_cut_short_ |= response.is_cut_short;
  const bool streams = step.has_streaming_input || step.model->decoupled();
  if (step.model->decoupled()) round = states_[index].next_round++;
  if (const std::string* receipt = ReceiptOf(response); receipt != nullptr)
    receipts_[round] = *receipt;
  for (const auto& [output, tensor] : step.outputs) {
    std::optional<Tensor> value;
    for (Tensor& made : response.outputs) {
      if (made.name == output) value = std::move(made);
    }
    if (value) value->name = tensor;
    tensors_.Set(tensor, round, std::move(value));
  }
  return streams ? std::set{round} : tensors_.Rounds();
}

void EnsembleRun::CollectLocked(const std::set<Round>& changed) {
  if (has_ended_) return;
  for (const size_t step : steps_) {
    if (!tensors_.streams(step)) {
      TryIssueLocked(step, 0);
      continue;
    }
    for (const Round round : changed) TryIssueLocked(step, round);
  }
  AnswerLocked();
  if (in_flight_ == 0 && to_issue_.empty()) EndLocked();
}

void EnsembleRun::TryIssueLocked(size_t step, Round round) {
  if (!error_.ok() || !tensors_.IsReady(step, round)) return;
  StepState& state = states_[step];
  if (max_running_ > 0 && tensors_.streams(step) && state.running.size() >= max_running_) {
    state.held.insert(round);
  } else {
    IssueLocked(step, round);
  }
}

void EnsembleRun::IssueHeldLocked(size_t step) {
  std::set<Round>& held = states_[step].held;
  while (error_.ok() && !held.empty() && states_[step].running.size() < max_running_) {
    IssueLocked(step, held.extract(held.begin()).value());
  }
}

void EnsembleRun::IssueLocked(size_t index, Round round) {
  const EnsembleStep& step = model_->graph_.steps[index];
  const ::inference::ModelConfig& config = step.model->config();
  auto charge = ChargeOfStep(request_);
  if (!charge.ok()) {
    error_ = FailLocked(charge.status());
    return;
  }
  Issue issue{.step = index, .round = round, .request = {}};
  Request& request = issue.request;
  request.charge = *std::move(charge);
  request.model_name = step.model->name();
  request.model_version = step.model->version();
  request.id = request_.id;
  request.is_step = true;
  request.parameters = request_.parameters;
  request.client = request_.client;
  request.tally = request_.tally;
  request.priority = request_.priority;
  request.timeout_us = request_.timeout_us;
  request.sequence_id = request_.sequence_id;
  request.sequence_name = request_.sequence_name;
  request.sequence_start = request_.sequence_start;
  request.sequence_end = request_.sequence_end;
  request.memory = request_.memory;
  request.received_ns = model_->clock_.NowNs();
  request.trace = request_.trace.Child();
  for (const auto& [input, tensor] : step.inputs) {
    const Tensor* given = tensors_.Get(tensor, round);
    if (given == nullptr) continue;  // an optional input that is absent
    Tensor value = *given;
    value.name = input;
    FitRank(RankOf(config, config.input(), input), value);
    request.inputs.push_back(std::move(value));
  }
  tensors_.Release(index, round);
  for (const auto& [output, tensor] : step.outputs) request.requested_outputs.push_back(output);
  if (const Status valid = ValidateRequest(config, request); !valid.ok()) {
    error_ = FailLocked(valid);
    return;
  }
  request.hold = request_.hold;
  if (request_.cancel->cancelled()) request.cancel->Cancel();
  states_[index].running[round] = request.cancel;
  ++in_flight_;
  to_issue_.push_back(std::move(issue));
}

void EnsembleRun::AnswerLocked() {
  const bool streams = tensors_.streams(EnsembleTensors::kAnswer);
  while (error_.ok() && (streams || next_answer_ == 0) &&
         tensors_.IsReady(EnsembleTensors::kAnswer, next_answer_)) {
    MakeAnswerLocked(next_answer_);
    has_answered_ = true;
    tensors_.Release(EnsembleTensors::kAnswer, next_answer_);
    ++next_answer_;
  }
}

// Without the outputs that no step has made.
void EnsembleRun::MakeAnswerLocked(Round round) {
  Response response{
      .model_name = model_->name(), .model_version = model_->version(), .id = request_.id};
  response.is_cut_short = is_cut_short_;
  for (const std::string& name : wanted_) {
    const Tensor* made = tensors_.Get(name, round);
    if (made == nullptr) {
      logging::Verbose("the composing models did not make an output",
                       {{"model", model_->name()}, {"output", name}});
      continue;
    }
    Tensor value = *made;
    FitRank(RankOf(model_->config(), model_->config().output(), name), value);
    response.outputs.push_back(std::move(value));
  }
  // What the original adds to every answer of an ensemble.
  if (request_.sequence_name.empty()) {
    response.parameters["sequence_id"] = static_cast<int64_t>(request_.sequence_id);
  } else {
    response.parameters["sequence_id"] = request_.sequence_name;
  }
  response.parameters["sequence_start"] = request_.sequence_start;
  response.parameters["sequence_end"] = request_.sequence_end;
  if (auto receipt = receipts_.extract(round))
    response.parameters[std::string(kReceiptParameter)] = std::move(receipt.mapped());
  outbox_.push_back(std::move(response));
}

// Nothing is in flight any more: the last answer is the end, or there is none.
void EnsembleRun::EndLocked() {
  has_ended_ = true;
  if (error_.ok() && !model_->decoupled() && !has_answered_) {
    error_ = FailLocked(InvalidArgument(
        "unexpected deadlock, at least one output is not set while no more ensemble steps can be "
        "made"));
  }
  if (error_.ok() && !outbox_.empty()) {
    outbox_.back().is_final = true;
    return;
  }
  outbox_.push_back({.model_name = model_->name(),
                     .model_version = model_->version(),
                     .id = request_.id,
                     .status = error_,
                     .is_final = true});
}

Status EnsembleRun::FailLocked(const Status& status) const {
  return status.WithMessage("in ensemble '" + model_->name() + "', " + status.message());
}

// Issues steps and delivers answers until there are neither.
void EnsembleRun::Flush() {
  while (true) {
    std::vector<Issue> issues;
    std::optional<Response> answer;
    {
      std::lock_guard lock(mutex_);
      issues.swap(to_issue_);
      if (issues.empty()) {
        if (is_delivering_ || outbox_.empty()) return;
        is_delivering_ = true;
        answer = std::move(outbox_.front());
        outbox_.pop_front();
      }
    }
    for (Issue& issue : issues) {
      const std::shared_ptr<Model>& model = model_->graph_.steps[issue.step].model;
      RunModel(*model, std::move(issue.request),
               [self = shared_from_this(), step = issue.step, round = issue.round](
                   Response response) { self->OnStepResponse(step, round, std::move(response)); });
    }
    if (!answer) continue;
    if (answer->is_final) {
      request_.cancel->SetListener(nullptr);
      Count(*answer);
    }
    handler_(*std::move(answer));
    std::lock_guard lock(mutex_);
    is_delivering_ = false;
  }
}

void EnsembleRun::Count(const Response& last) {
  const int64_t now_ns = model_->clock_.NowNs();
  if (!last.status.ok()) {  // counted where it is answered and where the request ends
    model_->statistics().RequestFailed(FailureReason::kOther, request_.received_ns, now_ns);
    model_->statistics().RequestFailed(FailureReason::kOther, request_.received_ns, now_ns);
    return;
  }
  const auto batch_size = request_.batch_size(model_->config().max_batch_size());
  model_->statistics().RequestSucceeded({.received_ns = request_.received_ns,
                                         .compute_start_ns = started_ns_,
                                         .compute_input_end_ns = started_ns_,
                                         .compute_output_start_ns = now_ns,
                                         .finished_ns = now_ns},
                                        static_cast<uint64_t>(batch_size));
}

}  // namespace inflight::serving
