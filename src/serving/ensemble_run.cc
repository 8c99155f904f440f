// SPDX-License-Identifier: Apache-2.0
#include "serving/ensemble_run.h"

#include <algorithm>
#include <utility>

#include "serving/validate.h"

namespace inflight::serving {
namespace {

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

}  // namespace

EnsembleRun::EnsembleRun(std::shared_ptr<EnsembleModel> model, Request request,
                         ResponseHandler handler)
    : model_(std::move(model)),
      request_(std::move(request)),
      handler_(std::move(handler)),
      wanted_(OutputNames(model_->config(), request_)),
      steps_(model_->graph_.StepsFor(wanted_)),
      started_ns_(model_->clock_.NowNs()) {}

void EnsembleRun::Start() {
  {
    std::lock_guard lock(mutex_);
    for (const auto& input : model_->config().input()) {
      const Tensor* given = request_.FindInput(input.name());
      tensors_[input.name()][0] = given == nullptr ? std::nullopt : std::optional(*given);
    }
    CollectLocked();
  }
  request_.cancel->SetListener([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    std::vector<std::shared_ptr<CancelToken>> tokens;
    {
      std::lock_guard lock(self->mutex_);
      tokens = self->tokens_;
    }
    for (const auto& token : tokens) token->Cancel();
  });
  Flush();
}

void EnsembleRun::OnStepResponse(size_t step, Round round, Response response) {
  const bool is_final = response.is_final;
  {
    std::lock_guard lock(mutex_);
    if (is_final) --in_flight_;
    StoreLocked(step, round, response);
    CollectLocked();
  }
  Flush();
}

void EnsembleRun::StoreLocked(size_t index, Round round, Response& response) {
  const EnsembleStep& step = model_->graph_.steps[index];
  if (!response.status.ok()) {
    if (error_.ok()) error_ = FailLocked(response.status);
    return;
  }
  const bool is_bare_end = step.model->decoupled() && response.is_final &&
                           response.outputs.empty() && !response.has_answer;
  if (is_bare_end || !error_.ok()) return;
  if (step.model->decoupled()) round = next_round_[index]++;
  for (const auto& [output, tensor] : step.outputs) tensors_[tensor][round] = std::nullopt;
  for (Tensor& output : response.outputs) {
    const auto mapped = step.outputs.find(output.name);
    if (mapped == step.outputs.end()) continue;
    output.name = mapped->second;
    tensors_[mapped->second][round] = std::move(output);
  }
}

void EnsembleRun::CollectLocked() {
  if (has_ended_) return;
  if (error_.ok()) {
    for (const size_t index : steps_) {
      const EnsembleStep& step = model_->graph_.steps[index];
      std::vector<std::string> inputs;
      for (const auto& [input, tensor] : step.inputs) inputs.push_back(tensor);
      for (const Round round : RoundsLocked(inputs)) {
        if (error_.ok() && issued_[index].insert(round).second) IssueLocked(index, round);
      }
    }
    for (const Round round : RoundsLocked(wanted_)) {
      if (!answered_.contains(round) && AnswerLocked(round)) answered_.insert(round);
    }
  }
  if (in_flight_ == 0 && to_issue_.empty()) EndLocked();
}

// The rounds in which all of these tensors are decided.
std::set<EnsembleRun::Round> EnsembleRun::RoundsLocked(
    const std::vector<std::string>& tensors) const {
  std::set<Round> rounds;
  bool has_stream = false;
  for (const std::string& tensor : tensors) {
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end()) return {};
    if (!model_->graph_.Streams(tensor)) continue;
    std::set<Round> present;
    for (const auto& [round, value] : found->second) {
      if (!has_stream || rounds.contains(round)) present.insert(round);
    }
    rounds = std::move(present);
    has_stream = true;
  }
  return has_stream ? rounds : std::set<Round>{0};
}

const EnsembleRun::Values* EnsembleRun::FindLocked(const std::string& tensor, Round round) const {
  const auto found = tensors_.find(tensor);
  return found != tensors_.end() && found->second.contains(round) ? &found->second : nullptr;
}

void EnsembleRun::IssueLocked(size_t index, Round round) {
  const EnsembleStep& step = model_->graph_.steps[index];
  const ::inference::ModelConfig& config = step.model->config();
  Issue issue{.step = index, .round = round, .request = {}};
  Request& request = issue.request;
  request.model_name = step.model->name();
  request.model_version = step.model->version();
  request.id = request_.id;
  request.parameters = request_.parameters;
  request.priority = request_.priority;
  request.timeout_us = request_.timeout_us;
  request.sequence_id = request_.sequence_id;
  request.sequence_name = request_.sequence_name;
  request.sequence_start = request_.sequence_start;
  request.sequence_end = request_.sequence_end;
  request.received_ns = model_->clock_.NowNs();
  for (const auto& [input, tensor] : step.inputs) {
    const Round of_tensor = model_->graph_.Streams(tensor) ? round : 0;
    const Values* values = FindLocked(tensor, of_tensor);
    if (values == nullptr || !values->at(of_tensor)) continue;  // an optional input that is absent
    Tensor value = *values->at(of_tensor);
    value.name = input;
    FitRank(RankOf(config, config.input(), input), value);
    request.inputs.push_back(std::move(value));
  }
  for (const auto& [output, tensor] : step.outputs) request.requested_outputs.push_back(output);
  if (const Status valid = ValidateRequest(config, request); !valid.ok()) {
    error_ = FailLocked(valid);
    return;
  }
  if (request_.cancel->cancelled()) request.cancel->Cancel();
  tokens_.push_back(request.cancel);
  ++in_flight_;
  to_issue_.push_back(std::move(issue));
}

// False: outputs of this round are missing, and it has no answer.
bool EnsembleRun::AnswerLocked(Round round) {
  Response response{
      .model_name = model_->name(), .model_version = model_->version(), .id = request_.id};
  for (const std::string& name : wanted_) {
    const Round of_tensor = model_->graph_.Streams(name) ? round : 0;
    const Values* values = FindLocked(name, of_tensor);
    if (values == nullptr || !values->at(of_tensor)) return false;
    Tensor value = *values->at(of_tensor);
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
  outbox_.push_back(std::move(response));
  return true;
}

// Nothing is in flight any more: the last answer is the end, or there is none.
void EnsembleRun::EndLocked() {
  has_ended_ = true;
  if (error_.ok() && !model_->decoupled() && answered_.empty()) {
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
  return {status.code(), "in ensemble '" + model_->name() + "', " + status.message()};
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
      model->Infer(std::move(issue.request), [self = shared_from_this(), step = issue.step,
                                              round = issue.round](Response response) {
        self->OnStepResponse(step, round, std::move(response));
      });
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
  if (!last.status.ok()) {
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
