// SPDX-License-Identifier: Apache-2.0
#include "serving/core/response_sender.h"

#include <algorithm>
#include <utility>

#include "serving/tensors/reshape.h"

namespace inflight::serving {

ResponseSender::ResponseSender(std::shared_ptr<Model> owner, const Request& request,
                               ResponseHandler handler, Clock& clock)
    : model_(std::move(owner)),
      origin_{.id = request.id,
              .requested_outputs = request.requested_outputs,
              .cancel = request.cancel,
              .received_ns = request.received_ns,
              .batch_size = request.batch_size(model_->config().max_batch_size()),
              .is_warm_up = request.is_warm_up,
              .trace = request.trace},
      handler_(std::move(handler)),
      clock_(clock) {
  span_.received_ns = origin_.received_ns;
  if (origin_.is_warm_up) return;
  is_pending_ = true;
  model_->statistics().RequestPending();
}

ResponseSender::~ResponseSender() {
  if (!has_ended_) Fail(Internal("the model ended without a final response"), /*is_final=*/true);
}

bool ResponseSender::Wants(std::string_view output) const {
  const auto& names = origin_.requested_outputs;
  return names.empty() || std::find(names.begin(), names.end(), output) != names.end();
}

void ResponseSender::ComputeStarts() {
  LeaveQueue();
  span_.compute_start_ns = clock_.NowNs();
  span_.compute_input_end_ns = span_.compute_start_ns;
}

void ResponseSender::Send(std::vector<Tensor> outputs, Parameters parameters, bool is_final) {
  if (take_outputs_) {
    Status taken = take_outputs_(outputs);
    if (!taken.ok()) return Fail(std::move(taken), is_final);
  }
  Response response = Begin(is_final);
  // A decoupled model chooses what each response has, as Triton leaves it to the back-end.
  if (!model_->decoupled())
    std::erase_if(outputs, [this](const Tensor& output) { return !Wants(output.name); });
  for (Tensor& output : outputs) ShapeOutput(model_->config(), output);
  response.outputs = std::move(outputs);
  response.parameters = std::move(parameters);
  Deliver(std::move(response));
}

void ResponseSender::Fail(Status status, bool is_final) {
  Response response = Begin(is_final);
  response.status = std::move(status);
  has_failed_ = true;
  Deliver(std::move(response));
}

void ResponseSender::Finish() { Deliver(Begin(/*is_final=*/true)); }

void ResponseSender::Refuse(Status status) {
  EndUnrun(std::move(status), FailureReason::kRejected, /*is_refused=*/true);
}

void ResponseSender::Reject(Status status, FailureReason reason) {
  EndUnrun(std::move(status), reason, /*is_refused=*/false);
}

void ResponseSender::EndUnrun(Status status, FailureReason reason, bool is_refused) {
  Response response = Begin(/*is_final=*/true);
  response.status = std::move(status);
  response.rejected = is_refused;
  has_ended_ = true;
  LeaveQueue();
  if (!origin_.is_warm_up) {
    model_->statistics().RequestFailed(reason, origin_.received_ns, clock_.NowNs());
  }
  if (!is_refused) origin_.trace.Mark("QUEUE_START", origin_.received_ns);
  handler_(std::move(response));
}

void ResponseSender::LeaveQueue() {
  if (std::exchange(is_pending_, false)) model_->statistics().RequestStarted();
}

Response ResponseSender::Begin(bool is_final) const {
  return {.model_name = model_->name(),
          .model_version = model_->version(),
          .id = origin_.id,
          .is_final = is_final};
}

// Counted before it is delivered, so that a client that has its answer finds it counted.
void ResponseSender::Deliver(Response response) {
  if (response.is_final) Count(response);
  handler_(std::move(response));
}

void ResponseSender::Count(const Response& last) {
  has_ended_ = true;
  LeaveQueue();
  span_.compute_output_start_ns = span_.finished_ns = clock_.NowNs();
  origin_.trace.AddSpan(span_);
  if (origin_.is_warm_up) return;
  ModelStatistics& statistics = model_->statistics();
  if (last.status.code() == StatusCode::kCancelled && cancelled()) {
    statistics.RequestCancelled(origin_.received_ns, span_.finished_ns);
  } else if (has_failed_) {
    statistics.RequestFailed(FailureReason::kBackend, origin_.received_ns, span_.finished_ns);
  } else {
    statistics.RequestSucceeded(span_, static_cast<uint64_t>(origin_.batch_size), execution_.get());
  }
}

}  // namespace inflight::serving
