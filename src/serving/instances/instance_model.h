// SPDX-License-Identifier: Apache-2.0
// A model whose requests wait in a queue for one of its instances (instance_pool.h), which executes
// them request by request.
//
//   Infer -> queue -> instance -> Executable -> responses
//
// Without sequences and dynamic batching, what never waits runs at once instead, on the thread that
// called Infer, unless a rate limiter says when an instance may run.
//
// Threads: Infer from any; responses come from instance threads, or from where the Executable
// sends them.
// Errors: refused requests (full queue, no START) are answered with `rejected` set; those whose
// time in the queue is over, and those cancelled there, are not.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "serving/core/executable.h"
#include "serving/core/model.h"
#include "serving/instances/instance_pool.h"
#include "serving/instances/rate_limiter.h"
#include "serving/instances/response_order.h"
#include "serving/sequences/sequence_states.h"

namespace inflight::serving {

class InstanceModel final : public Model, public std::enable_shared_from_this<InstanceModel> {
 public:
  // `config` is complete: its instance groups say how many threads there are, and with a limiter
  // what each needs to execute. `states` null: the server keeps no state of sequences.
  static std::shared_ptr<InstanceModel> Create(::inference::ModelConfig config, std::string version,
                                               std::unique_ptr<Executable> executable,
                                               Clock& clock = Clock::System(),
                                               RateLimiter* limiter = nullptr,
                                               std::unique_ptr<SequenceStates> states = nullptr);

  int num_instances() const override { return instances_.size(); }
  void Infer(Request request, ResponseHandler handler) override;
  // Not where a response may come from the thread of another request.
  bool waits_for_clients() const override { return order_ == nullptr; }
  // As InstancePool has it.
  Status SetInstanceGroups(const InstanceGroups& groups, const WarmUpInstance& warm_up) override;

 private:
  struct Work;  // what instances do with requests

  InstanceModel(::inference::ModelConfig config, std::string version,
                std::unique_ptr<Executable> executable, Clock& clock, RateLimiter* limiter,
                std::unique_ptr<SequenceStates> states);
  QueuedRequest ItemOf(Request request, ResponseHandler handler);

  Clock& clock_;
  const std::shared_ptr<const Work> work_;
  const std::shared_ptr<ResponseOrder> order_;  // null: responses go out as they come
  const bool may_run_at_once_;
  InstancePool instances_;
};

}  // namespace inflight::serving
