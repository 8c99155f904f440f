// SPDX-License-Identifier: Apache-2.0
// Whose turn it is among clients: within a priority each gets of the tokens by its share while
// others wait, however many requests it sends (docs/reference/scheduling.md, "Fair order").
//
// Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): the turn of a request is where its
// client's previous one ends in virtual time, or the present where the client asked for nothing;
// what it takes moves that end by its cost over the share. Tokens as the cost are those of
// arXiv:2401.00588. Requests of one client alone have turns in order of arrival.
//
// Threads: executor thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>

namespace inflight::scheduler {

// Of requests of one priority.
class FairTurns {
 public:
  // The turn of a new request; `cost` and `share` above 0.
  double Take(uint64_t client, double share, double cost) {
    double& end = ends_.try_emplace(client, now_).first->second;
    const double turn = std::max(end, now_);
    end = turn + cost / share;
    if (ends_.size() > max_clients_) Forget();
    return turn;
  }

  // A request of this turn begins to run: the present is never before it.
  void Begin(double turn) { now_ = std::max(now_, turn); }

  size_t num_clients() const { return ends_.size(); }

 private:
  // Those whose next turn would be the present.
  void Forget() {
    std::erase_if(ends_, [this](const auto& entry) { return entry.second <= now_; });
    max_clients_ = std::max(kMaxClients, 2 * ends_.size());
  }

  static constexpr size_t kMaxClients = 1024;
  size_t max_clients_ = kMaxClients;
  double now_ = 0;
  std::unordered_map<uint64_t, double> ends_;  // by client
};

// Of requests of all priorities. Each has a virtual time of its own: what begins before others by
// its priority would take their present beyond the turns that wait, and newcomers behind them.
class PriorityTurns {
 public:
  // The turn among those of its priority of a new request, which waits until Leave.
  double Take(float priority, uint64_t client, double share, double cost) {
    Line& line = lines_[priority];
    ++line.num_waiting;
    const double turn = line.turns.Take(client, share, cost);
    if (lines_.size() > kMaxLines) Forget();
    return turn;
  }

  void Begin(float priority, double turn) { lines_[priority].turns.Begin(turn); }

  // A request waits no longer, whether it began or ended.
  void Leave(float priority) { --lines_[priority].num_waiting; }

  size_t num_priorities() const { return lines_.size(); }

 private:
  struct Line {
    FairTurns turns;
    size_t num_waiting = 0;
  };

  // Those in which nobody waits for a turn.
  void Forget() {
    std::erase_if(lines_, [](const auto& entry) { return entry.second.num_waiting == 0; });
  }

  static constexpr size_t kMaxLines = 64;
  std::map<float, Line> lines_;  // by priority
};

}  // namespace inflight::scheduler
