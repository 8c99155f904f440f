// SPDX-License-Identifier: Apache-2.0
// One request on its way through an ensemble: a step is issued for each round in which its inputs
// are there (ensemble_tensors.h), an answer goes out for each round of the outputs, in their order.
//
// max_inflight_requests: so many requests of a step that takes a stream run at once; what is more
// waits here, and a decoupled step that makes the stream is held in its response until there is
// room.
//
// Threads: a mutex guards the state; steps are issued, and the handler is called, without it. One
// thread at a time delivers, the others leave their answers in `outbox_`.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "serving/ensemble/ensemble_model.h"
#include "serving/ensemble/ensemble_tensors.h"

namespace inflight::serving {

class EnsembleRun : public std::enable_shared_from_this<EnsembleRun> {
 public:
  EnsembleRun(std::shared_ptr<EnsembleModel> model, Request request, ResponseHandler handler);

  void Start();

 private:
  using Round = EnsembleTensors::Round;
  struct Issue {
    size_t step;
    Round round;
    Request request;
  };
  struct StepState {
    std::map<Round, std::shared_ptr<CancelToken>> running;
    std::set<Round> held;       // ready, but as many run as may
    Round next_round = 0;       // of a step that begins a stream
    std::set<size_t> streamed;  // the steps that its stream reaches
  };

  void OnStepResponse(size_t step, Round round, Response response);
  // --- with mutex_ held ---
  void WaitForRoomLocked(std::unique_lock<std::mutex>& lock, size_t step);
  bool HasRoomLocked(size_t step) const;
  // The rounds that a response changes; none where it brings nothing.
  std::set<Round> StoreLocked(size_t index, Round round, Response& response);
  void CollectLocked(const std::set<Round>& changed);  // what can be issued and answered now
  void TryIssueLocked(size_t step, Round round);
  void IssueHeldLocked(size_t step);
  void IssueLocked(size_t index, Round round);
  void AnswerLocked();
  void MakeAnswerLocked(Round round);
  void EndLocked();
  Status FailLocked(const Status& status) const;
  // --- without it ---
  std::set<size_t> StreamedFrom(size_t step) const;
  void Cancel();
  void Flush();
  void Count(const Response& last);

  const std::shared_ptr<EnsembleModel> model_;
  const Request request_;
  const ResponseHandler handler_;
  const std::vector<std::string> wanted_;  // ensemble outputs
  const std::vector<size_t> steps_;        // those needed for them
  const size_t max_running_;               // of a step that takes a stream; 0 = any number
  const int64_t started_ns_;

  std::mutex mutex_;
  std::condition_variable has_room_;
  EnsembleTensors tensors_;
  std::map<size_t, StepState> states_;  // by step
  Round next_answer_ = 0;
  bool has_answered_ = false;
  bool is_cut_short_ = false;              // as a step was
  std::map<Round, std::string> receipts_;  // of an LLM among the steps
  std::vector<Issue> to_issue_;
  int64_t in_flight_ = 0;
  Status error_;
  std::deque<Response> outbox_;
  bool is_delivering_ = false;
  bool has_ended_ = false;
};

}  // namespace inflight::serving
