// SPDX-License-Identifier: Apache-2.0
// Orchestrator mode: one server whose models of several ranks have processes of their own, so that
// several such models run at a time, and one that loses a rank is lost alone. The server is rank 0
// of each. The others are processes that it starts by its own program (`inflight worker`), or
// processes that a launcher started beside it, which it gives out by number.
//
// Processes that it started read an order (loader/rank_order.h) and end with the model, and with
// the server however that ends (base/child_process.h).
// Threads: any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/rendezvous.h"
#include "inflight/open.h"
#include "launch/world.h"
#include "loader/rank_order.h"

namespace inflight {

// Ids of something that one model at a time may have, by the name of the key that asks for them.
class IdClaims : public std::enable_shared_from_this<IdClaims> {
 public:
  // `patience`: how long a model may take that is being unloaded.
  IdClaims(std::string key, std::chrono::milliseconds patience)
      : key_(std::move(key)), patience_(patience) {}

  // What gives them back when it goes. kInvalidArgument: an id stands twice. kFailedPrecondition:
  // another model has one, and keeps it.
  Result<std::shared_ptr<void>> Take(const std::vector<int>& ids, const std::string& model);

 private:
  const std::string key_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable given_back_;
  std::map<int, std::string> owners_;  // guarded by mutex_
};

// What a model asks for.
struct RankRequest {
  std::string model;  // "tensorrt_llm/1"
  int num_ranks = 0;
  std::vector<int> participants = {};  // of each rank, where processes are given out
  std::string program = {};            // where it names the server's own; empty: the same
};

class Orchestrator {
 public:
  // One that starts processes, which open models on `device` and log as this process does.
  // `cannot_start`: why it may not; empty where it may.
  static std::shared_ptr<Orchestrator> ThatStarts(std::string device, int num_threads,
                                                  std::string cannot_start);
  // One that gives out those of `launched`, of which this is the first; null: there is none.
  static std::shared_ptr<Orchestrator> ThatGivesOut(std::shared_ptr<comm::Group> launched,
                                                    const launch::World& world);
  ~Orchestrator();  // the processes of the launcher end without an error

  bool starts() const { return starts_; }

  // The ranks of a model, all of whom have come; they end, or are free again, when it goes.
  // Errors name the key at fault or say which rank has not come and why.
  Result<std::shared_ptr<RankProcesses>> StartRanks(const RankRequest& request);

 private:
  class Crew;
  Orchestrator(bool starts, const launch::World& world) : starts_(starts), world_(world) {}
  Status Check(const RankRequest& request) const;
  Status SetUp(const RankRequest& request, RankOrder order, Crew& crew);

  const bool starts_;
  const launch::World world_;  // of this process
  RankOrder common_;           // of all ranks of all models
  std::string cannot_start_;
  std::shared_ptr<comm::Group> launched_;
  std::mutex mutex_;  // of messages to them
  static constexpr std::chrono::seconds kForUnloading{10};
  const std::shared_ptr<IdClaims> participants_ =
      std::make_shared<IdClaims>("participant_ids", kForUnloading);
};

}  // namespace inflight
