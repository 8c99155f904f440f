// SPDX-License-Identifier: Apache-2.0
#include "serving/instances/instance_model.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "serving/sequences/sequence_controls.h"
#include "serving/tensors/reshape.h"

namespace inflight::serving {
namespace {

bool PreservesOrder(const ::inference::ModelConfig& config) {
  return config.dynamic_batching().preserve_ordering() ||
         config.sequence_batching().oldest().preserve_ordering();
}

// Answers what was cancelled, or is of a sequence that was.
bool IsGivenUp(const QueuedRequest& item) {
  const bool is_cancelled = item.sender->cancelled();
  if (!is_cancelled && (item.fate == nullptr || !item.fate->is_cancelled)) return false;
  if (item.fate != nullptr) item.fate->is_cancelled = true;
  item.sender->Reject(Cancelled(is_cancelled ? "the request was cancelled before it ran"
                                             : "its sequence was cancelled"),
                      FailureReason::kCanceled);
  return true;
}

// As it is counted: of direct sequences each slot below those that run is a row too.
uint64_t BatchSizeOf(const ::inference::ModelConfig& config,
                     const std::vector<QueuedRequest>& batch) {
  const bool has_slots = config.has_sequence_batching() &&
                         !config.sequence_batching().has_oldest() && config.max_batch_size() > 0;
  uint64_t size = 0;
  for (const QueuedRequest& item : batch) {
    if (has_slots) {
      size = std::max(size, static_cast<uint64_t>(item.slot) + 1);
    } else {
      size += static_cast<uint64_t>(item.request.batch_size(config.max_batch_size()));
    }
  }
  return size;
}

}  // namespace

// The configuration is the model's, which each request keeps.
struct InstanceModel::Work {
  Work(std::unique_ptr<Executable> work, std::unique_ptr<SequenceStates> kept)
      : executable(std::move(work)), states(std::move(kept)) {}

  void RunBatch(const ::inference::ModelConfig& config, std::vector<QueuedRequest> batch) const;
  void Run(const ::inference::ModelConfig& config, QueuedRequest& item) const;

  const std::unique_ptr<Executable> executable;
  const std::shared_ptr<const SequenceStates> states;  // null: none
};

void InstanceModel::Work::RunBatch(const ::inference::ModelConfig& config,
                                   std::vector<QueuedRequest> batch) const {
  std::erase_if(batch, [](const QueuedRequest& item) { return IsGivenUp(item); });
  if (batch.empty()) return;
  const uint64_t size = BatchSizeOf(config, batch);
  if (batch.size() == 1 && size == 1) return Run(config, batch.front());
  const auto execution = std::make_shared<BatchExecution>();
  execution->size = size;
  for (const QueuedRequest& item : batch) {  // all leave the queue before the first is computed
    item.sender->Joins(execution);
    item.sender->ComputeStarts();
  }
  for (QueuedRequest& item : batch) {
    Run(config, item);
    item = QueuedRequest();  // ends the request, unless the model goes on with it
  }
}

void InstanceModel::Work::Run(const ::inference::ModelConfig& config, QueuedRequest& item) const {
  try {
    for (Tensor& input : item.request.inputs) ShapeInput(config, input);
    if (states != nullptr && item.states != nullptr) {
      states->AddInputs(*item.states, item.request);
      item.sender->BeforeOutputs(
          [states = states, kept = item.states](std::vector<Tensor>& outputs) {
            return states->Keep(*kept, outputs);
          });
    }
    item.request.trace.AddTensors("TENSOR_BACKEND_INPUT", item.request.inputs);
    if (!item.sender->is_computed()) item.sender->ComputeStarts();
    executable->Execute(item.request, item.sender);
  } catch (const std::exception& e) {  // no memory, or no thread: the others go on
    logging::Error("inference threw", {{"model", config.name()}, {"what", e.what()}});
    if (item.sender->ended()) return;
    item.sender->Fail(Caught("unexpected error", e), /*is_final=*/true);
  }
}

std::shared_ptr<InstanceModel> InstanceModel::Create(::inference::ModelConfig config,
                                                     std::string version,
                                                     std::unique_ptr<Executable> executable,
                                                     Clock& clock, RateLimiter* limiter,
                                                     std::unique_ptr<SequenceStates> states) {
  return std::shared_ptr<InstanceModel>(new InstanceModel(std::move(config), std::move(version),
                                                          std::move(executable), clock, limiter,
                                                          std::move(states)));
}

InstanceModel::InstanceModel(::inference::ModelConfig config, std::string version,
                             std::unique_ptr<Executable> executable, Clock& clock,
                             RateLimiter* limiter, std::unique_ptr<SequenceStates> states)
    : Model(std::move(config), std::move(version)),
      clock_(clock),
      work_(std::make_shared<const Work>(std::move(executable), std::move(states))),
      order_(PreservesOrder(this->config()) ? std::make_shared<ResponseOrder>() : nullptr),
      may_run_at_once_(!this->config().has_sequence_batching() &&
                       !this->config().has_dynamic_batching() && work_->executable->never_waits()),
      instances_(this->config(), clock, limiter,
                 [work = work_, &complete = this->config()](std::vector<QueuedRequest> batch) {
                   work->RunBatch(complete, std::move(batch));
                 }) {
  const auto no_warm_up = [](const auto&) { return Status::Ok(); };  // it is not known to anybody
  CHECK(instances_.SetGroups(complete_config().instance_group(), no_warm_up).ok());
}

QueuedRequest InstanceModel::ItemOf(Request request, ResponseHandler handler) {
  QueuedRequest item;
  item.sender =
      std::make_shared<ResponseSender>(shared_from_this(), request, std::move(handler), clock_);
  item.request = std::move(request);
  return item;
}

void InstanceModel::Infer(Request request, ResponseHandler handler) {
  if (order_ != nullptr) handler = order_->InOrder(std::move(handler));
  QueuedRequest item = ItemOf(std::move(request), std::move(handler));
  if (may_run_at_once_ && !instances_.is_limited() && !item.request.is_step) {
    return work_->Run(config(), item);
  }
  if (const Status status = instances_.Add(item); !status.ok()) item.sender->Refuse(status);
}

Status InstanceModel::SetInstanceGroups(const InstanceGroups& groups,
                                        const WarmUpInstance& warm_up) {
  const auto warm_up_one = [&](const auto& execute) {
    return warm_up([&](Request request, ResponseHandler handler) {
      QueuedRequest item = ItemOf(std::move(request), std::move(handler));
      if (config().has_sequence_batching()) AddSequenceControls(config(), item.request);
      if (work_->states != nullptr) item.states = std::make_shared<SequenceStates::Values>();
      execute(std::move(item));
    });
  };
  RETURN_IF_ERROR(instances_.SetGroups(groups, warm_up_one));
  return Model::SetInstanceGroups(groups, warm_up);
}

}  // namespace inflight::serving
