// SPDX-License-Identifier: Apache-2.0
// A group of processes, one for each rank, that find each other over TCP and then exchange
// messages. Rank 0 listens on the leader's address and port; the others connect to it, again and
// again until a deadline. When all have come, every two of them have a connection of their own.
//
// A message is a length and that many bytes. Messages of two ranks arrive whole and in the order in
// which they were sent; of others nothing is said.
//
// Who is lost: a process that ends without leaving is known at once, by its closed connections; one
// that is stopped or whose host is gone, when rank 0 has heard no heartbeat of it for
// GroupOptions::silence, within a second. Rank 0 tells all others. From then on every call of every
// rank returns kUnavailable with that rank's number: a group is whole, or over.
//
// Threads: one call at a time for each direction of each peer; Send and Receive of one peer may run
// at the same time. status() and Abort are for any thread. A thread of the group sends and awaits
// heartbeats.
// Safety: messages are plain, and who knows a group's Agreement may take the place of a rank that
// has not come yet; the port is for networks whose hosts are trusted. Strangers who say anything
// else on it are turned away, and after Join nobody listens on it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/deadline.h"
#include "inflight/status.h"
#include "launch/world.h"

namespace inflight::comm {

// What all ranks of a group have in common; who differs is refused.
struct Agreement {
  std::string version;  // of the program; its first 24 bytes count
  // Of the model and of the options that ranks may not have differently, or a secret: who is
  // refused does not learn it.
  uint64_t hash = 0;
};

struct GroupOptions {
  std::chrono::milliseconds silence{10000};  // how long a rank may say nothing; at least 100
  std::string name = {};  // begins what is told of a group that is over; empty: nothing does
  // Of rank 0: a socket that listens (Listen) in place of the leader's port; Join takes it.
  int listener = -1;
  // Of rank 0, asked a few times a second while others have not come: an error ends the waiting.
  std::function<Status()> check = nullptr;
};

class Group {
 public:
  static constexpr size_t kMaxMessageBytes = size_t{1} << 30;

  // Returns when all ranks of `world` have joined. Of a world of one rank at once.
  // kDeadlineExceeded: by then somebody had not come; at rank 0 the message has their numbers.
  // kFailedPrecondition: rank 0 refused this one, because another has its rank, or its version,
  // size or hash is another. kUnavailable: a rank was lost meanwhile. kInvalidArgument: `world` has
  // no leader's address. kInternal: the port is taken, or no socket is to be had. Looking up a
  // host's name may take longer than the deadline. Of GroupOptions::check what it says.
  static Result<std::unique_ptr<Group>> Join(const launch::World& world, const Agreement& agreement,
                                             Deadline deadline, const GroupOptions& options = {});

  virtual ~Group() = default;  // leaves: the others' Receive from this rank returns kCancelled
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns when the system has taken all of it, which may need the peer to receive.
  // kInvalidArgument: `rank` is this one or none of the group, or the message is too long.
  virtual Status Send(int rank, std::span<const std::byte> message) = 0;

  // The next message of `rank`. kDeadlineExceeded: none had begun by then; it is not lost.
  virtual Result<std::vector<std::byte>> Receive(int rank, Deadline deadline) = 0;

  // Sends `out` to one rank and at the same time fills `in` with the next message of another, or of
  // the same: what a ring needs, where everybody sends before anybody receives. A message of
  // another length ends the group with kDataLoss.
  virtual Status Exchange(int to, std::span<const std::byte> out, int from,
                          std::span<std::byte> in) = 0;

  // Why the group is over; OK while it is not.
  virtual Status status() const = 0;

  // Ends the group on all ranks; here with `reason`, elsewhere with this rank's number. The first
  // reason is kept.
  virtual void Abort(const Status& reason) = 0;

 protected:
  Group() = default;
};

}  // namespace inflight::comm
