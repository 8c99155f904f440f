// SPDX-License-Identifier: Apache-2.0
#include "serving/instance_model.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "serving/reshape.h"
#include "serving/validate.h"

namespace inflight::serving {
namespace {

int NumInstances(const ::inference::ModelConfig& config) {
  int count = 0;
  for (const auto& group : config.instance_group()) {
    if (!group.passive()) count += std::max(group.count(), 0);
  }
  return std::max(count, 1);
}

// Of each instance what it needs to execute; null where that is nothing.
std::vector<std::unique_ptr<RateLimiter::Instance>> Register(const ::inference::ModelConfig& config,
                                                             RateLimiter* limiter) {
  std::vector<std::unique_ptr<RateLimiter::Instance>> instances;
  for (const auto& group : config.instance_group()) {
    for (int i = 0; !group.passive() && i < group.count(); ++i) {
      const bool is_limited = limiter != nullptr && group.rate_limiter().resources_size() > 0;
      instances.push_back(is_limited ? limiter->Register(group.rate_limiter()) : nullptr);
    }
  }
  instances.resize(static_cast<size_t>(NumInstances(config)));
  return instances;
}

bool PreservesOrder(const ::inference::ModelConfig& config) {
  return config.dynamic_batching().preserve_ordering() ||
         config.sequence_batching().oldest().preserve_ordering();
}

void Expire(QueuedRequest item) {
  item.sender->Reject(Unavailable("Request timeout expired"), FailureReason::kRejected);
}

void NameThread(const std::string& model) {
  pthread_setname_np(pthread_self(), ("i:" + model).substr(0, 15).c_str());
}

// How often what waits for a sequence's end is looked at: as often as one may fall idle, and often
// enough for a client that cancels.
std::chrono::microseconds TickPeriod(const ::inference::ModelConfig& config) {
  using std::chrono::microseconds;
  constexpr uint64_t kMinUs = 1000;
  constexpr uint64_t kMaxUs = 100'000;
  const uint64_t idle_us = config.sequence_batching().max_sequence_idle_microseconds();
  return microseconds(std::clamp(idle_us, kMinUs, kMaxUs));
}

}  // namespace

struct InstanceModel::Shared {
  Shared(std::unique_ptr<Executable> work, std::unique_ptr<SequenceStates> kept)
      : executable(std::move(work)), states(std::move(kept)) {}

  void Serve(const ::inference::ModelConfig& config, RequestQueue& queue) const;
  void ServeLimited(const ::inference::ModelConfig& config, RequestQueue& queue,
                    RateLimiter::Instance& limits) const;
  void TickSequences(std::chrono::microseconds period);
  void Close();
  void RunBatch(const ::inference::ModelConfig& config, std::vector<QueuedRequest> batch) const;
  void Run(const ::inference::ModelConfig& config, QueuedRequest& item) const;

  const std::unique_ptr<Executable> executable;
  const std::shared_ptr<const SequenceStates> states;  // null: none
  std::vector<std::unique_ptr<RequestQueue>> queues;
  std::unique_ptr<SequenceTable> sequences;                    // null without sequence batching
  std::vector<std::unique_ptr<RateLimiter::Instance>> limits;  // by instance; null: none

 private:
  std::mutex mutex_;
  std::condition_variable closes_;
  bool is_closed_ = false;
};

// The configuration is the model's, which each request keeps.
void InstanceModel::Shared::Serve(const ::inference::ModelConfig& config,
                                  RequestQueue& queue) const {
  for (auto batch = queue.Take(); !batch.empty(); batch = queue.Take()) {
    RunBatch(config, std::move(batch));
  }
}

void InstanceModel::Shared::ServeLimited(const ::inference::ModelConfig& config,
                                         RequestQueue& queue, RateLimiter::Instance& limits) const {
  while (queue.WaitForBatch() && limits.Acquire()) {
    std::vector<QueuedRequest> batch = queue.TryTake();
    const bool has_executed = !batch.empty();
    RunBatch(config, std::move(batch));
    limits.Release(has_executed);
  }
}

void InstanceModel::Shared::RunBatch(const ::inference::ModelConfig& config,
                                     std::vector<QueuedRequest> batch) const {
  std::erase_if(batch, [](const QueuedRequest& item) {
    if (!item.sender->cancelled()) return false;
    item.sender->Reject(Cancelled("the request was cancelled before it ran"),
                        FailureReason::kCanceled);
    return true;
  });
  if (batch.empty()) return;
  if (batch.size() == 1) return Run(config, batch.front());
  const auto execution = std::make_shared<BatchExecution>();
  for (const QueuedRequest& item : batch) {
    execution->size += static_cast<uint64_t>(item.request.batch_size(config.max_batch_size()));
  }
  for (const QueuedRequest& item : batch) {  // all leave the queue before the first is computed
    item.sender->Joins(execution);
    item.sender->ComputeStarts();
  }
  for (QueuedRequest& item : batch) {
    Run(config, item);
    item = QueuedRequest();  // ends the request, unless the model goes on with it
  }
}

void InstanceModel::Shared::Run(const ::inference::ModelConfig& config, QueuedRequest& item) const {
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
    item.sender->Fail(Internal(std::string("unexpected error: ") + e.what()), /*is_final=*/true);
  }
}

void InstanceModel::Shared::TickSequences(std::chrono::microseconds period) {
  std::unique_lock lock(mutex_);
  while (!closes_.wait_for(lock, period, [this] { return is_closed_; })) {
    lock.unlock();
    sequences->Tick();
    lock.lock();
  }
}

void InstanceModel::Shared::Close() {
  for (const auto& queue : queues) queue->Close();
  for (const auto& instance : limits) {
    if (instance != nullptr) instance->Close();
  }
  std::lock_guard lock(mutex_);
  is_closed_ = true;
  closes_.notify_all();
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
      shared_(std::make_shared<Shared>(std::move(executable), std::move(states))),
      order_(PreservesOrder(this->config()) ? std::make_shared<ResponseOrder>() : nullptr) {
  const ::inference::ModelConfig& complete = this->config();
  const int num_instances = NumInstances(complete);
  const bool has_sequences = complete.has_sequence_batching();
  shared_->limits = Register(complete, limiter);
  const bool is_limited = std::any_of(shared_->limits.begin(), shared_->limits.end(),
                                      [](const auto& instance) { return instance != nullptr; });
  runs_at_once_ = !has_sequences && !complete.has_dynamic_batching() && !is_limited &&
                  shared_->executable->never_waits();
  for (int i = 0; i < (has_sequences ? num_instances : 1); ++i) {
    shared_->queues.push_back(std::make_unique<RequestQueue>(complete, clock_, Expire));
  }
  if (has_sequences) {
    shared_->sequences = std::make_unique<SequenceTable>(
        complete, num_instances, clock_,
        [shared = shared_.get()](QueuedRequest item, int instance) {
          RequestQueue& queue = *shared->queues[static_cast<size_t>(instance)];
          // Its queue has neither a size nor a time-out, and is open while requests keep the model.
          if (const Status status = queue.Add(item); !status.ok()) {
            item.sender->Reject(status, FailureReason::kRejected);
          }
        },
        [](QueuedRequest item, const Status& status) {
          const bool is_cancelled = status.code() == StatusCode::kCancelled;
          item.sender->Reject(status,
                              is_cancelled ? FailureReason::kCanceled : FailureReason::kRejected);
        });
  }
  const auto start = [&](auto work) {
    threads_.emplace_back([shared = shared_, &complete, work] {
      NameThread(complete.name());
      work(*shared, complete);
    });
  };
  try {
    for (const auto& queue : shared_->queues) {
      if (!queue->rejects_in_time()) continue;
      start([queue = queue.get()](Shared&, const auto&) { queue->RejectUntilClosed(); });
    }
    if (has_sequences) {
      start([period = TickPeriod(complete)](Shared& shared, const auto&) {
        shared.TickSequences(period);
      });
    }
    for (int i = 0; i < num_instances; ++i) {
      RequestQueue* queue = shared_->queues[static_cast<size_t>(i) % shared_->queues.size()].get();
      RateLimiter::Instance* limits = shared_->limits[static_cast<size_t>(i)].get();
      start([queue, limits](const Shared& shared, const ::inference::ModelConfig& config) {
        if (limits == nullptr) return shared.Serve(config, *queue);
        shared.ServeLimited(config, *queue, *limits);
      });
    }
  } catch (...) {  // no more threads: those that run must not outlive us
    Stop();
    throw;
  }
}

// No request is left, since each keeps the model; the last one may have let go of it on one of our
// own threads.
InstanceModel::~InstanceModel() { Stop(); }

void InstanceModel::Stop() {
  shared_->Close();
  for (std::thread& thread : threads_) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

int InstanceModel::num_instances() const { return NumInstances(config()); }

void InstanceModel::Infer(Request request, ResponseHandler handler) {
  if (order_ != nullptr) handler = order_->InOrder(std::move(handler));
  QueuedRequest item;
  item.sender =
      std::make_shared<ResponseSender>(shared_from_this(), request, std::move(handler), clock_);
  item.request = std::move(request);
  if (runs_at_once_ && !item.request.is_step) return shared_->Run(config(), item);
  const Status status = shared_->sequences != nullptr
                            ? shared_->sequences->Add(item)
                            : WithRequestId(shared_->queues.front()->Add(item), item.request);
  if (!status.ok()) item.sender->Refuse(status);
}

}  // namespace inflight::serving
