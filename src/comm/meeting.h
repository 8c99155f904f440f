// SPDX-License-Identifier: Apache-2.0
// How the ranks of a group come to know each other (the messages: comm/wire.h).
//
// clang-format off
//   gather     each rank joins at rank 0's port with its own listening port; rank 0 refuses who does
//              not fit and answers when all have come, with the places of all
//   assemble   each rank connects to all lower ones and awaits all higher ones; when it has them it
//              says kReady to rank 0, which says kGo when all have
// clang-format on
#pragma once

#include <netinet/in.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "comm/door.h"
#include "comm/rendezvous.h"
#include "comm/tcp.h"
#include "comm/watch.h"
#include "comm/wire.h"
#include "inflight/status.h"
#include "launch/world.h"

namespace inflight::comm {

class Meeting {
 public:
  // `world` and `options` outlive it.
  Meeting(const launch::World& world, const Agreement& agreement, Deadline deadline,
          const GroupOptions& options);

  Status Lead(Descriptor listener);  // as rank 0; without a listener it makes one
  Status Follow();                   // as another

  // After one of them.
  std::unique_ptr<Group> MakeGroup();

 private:
  // Rank 0.
  Status Gather(Door& door);
  void Welcome(Arrival arrival);
  // Why the hello's sender may not join; empty where it may.
  std::string WhyNot(const Hello& hello, const sockaddr_in6& from) const;
  void Refuse(const Descriptor& socket, const std::string& why);
  void ForgetTheLost();
  Status GiveUp();
  Status AnswerAll(const Door& door);

  // Others.
  Status AskLeader(const Door& door);
  Result<Answer> AskOnce(const Door& door);
  Status ConnectToLower();

  // All.
  Status Assemble(Door& door);
  void TakeData(Arrival arrival);
  Status ReadControls();
  void Tell(const Notice& notice);
  std::vector<int> ControlSockets() const;
  bool HasAllData() const;
  std::string LeaderText() const;

  const launch::World& world_;
  const Deadline deadline_;
  const GroupOptions& options_;
  Hello hello_;  // this rank's
  uint64_t group_ = 0;
  std::vector<Control> controls_;     // rank 0: of ranks 1 to size - 1; others: of rank 0
  std::vector<sockaddr_in6> places_;  // [size] where others listen; rank 0: those who have joined
  std::vector<Descriptor> data_;      // [size]
  std::vector<bool> ready_;           // of each of controls_
  std::string last_refused_;
};

}  // namespace inflight::comm
