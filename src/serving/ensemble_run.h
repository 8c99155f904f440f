// SPDX-License-Identifier: Apache-2.0
// One request on its way through an ensemble.
//
// Rounds: a tensor that streams has a value for each response of the step that began the stream,
// the round; all others have one value, which every round sees. A step runs once for each round of
// its inputs, an answer goes out for each round of the outputs.
//
//   tensors_[name][round]   nullopt = the step that makes it left it out
//
// Threads: a mutex guards the state; steps are issued, and the handler is called, without it. One
// thread at a time delivers, the others leave their answers in `outbox_`.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "serving/ensemble_model.h"

namespace inflight::serving {

class EnsembleRun : public std::enable_shared_from_this<EnsembleRun> {
 public:
  EnsembleRun(std::shared_ptr<EnsembleModel> model, Request request, ResponseHandler handler);

  void Start();

 private:
  using Round = uint64_t;
  using Values = std::map<Round, std::optional<Tensor>>;
  struct Issue {
    size_t step;
    Round round;
    Request request;
  };

  void OnStepResponse(size_t step, Round round, Response response);
  // --- with mutex_ held ---
  void StoreLocked(size_t step, Round round, Response& response);
  void CollectLocked();  // what can be issued and answered now
  void IssueLocked(size_t step, Round round);
  bool AnswerLocked(Round round);
  void EndLocked();
  const Values* FindLocked(const std::string& tensor, Round round) const;
  std::set<Round> RoundsLocked(const std::vector<std::string>& tensors) const;
  Status FailLocked(const Status& status) const;
  // --- without it ---
  void Flush();
  void Count(const Response& last);

  const std::shared_ptr<EnsembleModel> model_;
  const Request request_;
  const ResponseHandler handler_;
  std::vector<std::string> wanted_;  // ensemble outputs
  std::vector<size_t> steps_;        // those needed for them
  const int64_t started_ns_;

  std::mutex mutex_;
  std::map<std::string, Values> tensors_;
  std::map<size_t, std::set<Round>> issued_;  // by step
  std::map<size_t, Round> next_round_;        // of steps that stream
  std::set<Round> answered_;
  std::vector<Issue> to_issue_;
  std::vector<std::shared_ptr<CancelToken>> tokens_;  // of steps
  int64_t in_flight_ = 0;
  Status error_;
  std::deque<Response> outbox_;
  bool is_delivering_ = false;
  bool has_ended_ = false;
};

}  // namespace inflight::serving
