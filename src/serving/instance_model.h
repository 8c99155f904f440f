// SPDX-License-Identifier: Apache-2.0
// A model whose requests wait in a queue for one of its instances, each of which executes one
// batch at a time on a thread of its own (spec/triton-protocol.md 3.5, 3.6), request by request.
//
//   Infer -> [sequence table] -> queue -> instance thread -> Executable -> responses
//
// Models without sequence batching have one queue for all instances; with it each instance has its
// own, since a sequence stays where it began. Without sequences and dynamic batching, what never
// waits runs at once instead, on the thread that called Infer.
//
// With a rate limiter an instance takes a batch once it has the resources of its group; until
// then its requests are in the queue.
//
// Threads: Infer from any; responses come from instance threads, or from where the Executable
// sends them.
// Errors: refused requests (full queue, no START) are answered with `rejected` set; those whose
// time in the queue is over, and those cancelled there, are not.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "serving/executable.h"
#include "serving/model.h"
#include "serving/rate_limiter.h"
#include "serving/request_queue.h"
#include "serving/response_order.h"
#include "serving/sequence_table.h"

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
  ~InstanceModel() override;

  int num_instances() const override;
  void Infer(Request request, ResponseHandler handler) override;

 private:
  struct Shared;  // what threads use; each keeps it, so that it outlives the model by their last
                  // step

  InstanceModel(::inference::ModelConfig config, std::string version,
                std::unique_ptr<Executable> executable, Clock& clock, RateLimiter* limiter,
                std::unique_ptr<SequenceStates> states);
  void Stop();

  Clock& clock_;
  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<ResponseOrder> order_;  // null: responses go out as they come
  bool runs_at_once_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace inflight::serving
