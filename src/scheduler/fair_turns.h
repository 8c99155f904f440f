// SPDX-License-Identifier: Apache-2.0
// Whose turn it is among clients: each gets of the tokens by its share while others wait, however
// many requests it sends (docs/reference/scheduling.md, "Fair order").
//
// Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): the turn of a request is where its
// client's previous one ends in virtual time, or the present where the client asked for nothing;
// what it takes moves that end by its cost over the share. Tokens as the cost are those of
// arXiv:2401.00588. Requests of one client alone have turns in order of arrival. A request that
// begins early by its priority takes the present with it.
//
// Threads: executor thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace inflight::scheduler {

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

}  // namespace inflight::scheduler
