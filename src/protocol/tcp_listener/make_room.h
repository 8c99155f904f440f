// SPDX-License-Identifier: Apache-2.0
// Who gives way to a new connection where a listener is full, so that no client can keep others out
// by the connections that it holds.
#pragma once

#include <memory>
#include <tuple>

#include "protocol/tcp_listener/connection.h"

namespace inflight::tcp_listener {

// A connection that waits for its client, and how well it fits: the greater, the better.
struct Room {
  std::weak_ptr<Connection> connection;
  size_t place = 0;                                // of its thread
  std::tuple<int, int, int64_t> rank = {0, 0, 0};  // 0: none was found

  bool IsFound() const { return std::get<0>(rank) > 0; }
  // The connection, null where it has closed or begun a request since. On its thread.
  std::shared_ptr<Connection> Waiting() const;
};

// Makes `best` one of `thread`, which is at `place`, if that fits better: of the client that has
// most of those that wait in a thread an idle one, else one that had its last answer, else one
// within a request; that whose last request is longest ago. None gives way to a client that has
// more, and one within a request only to clients that have fewer: a newcomer must not cut off what
// is under way for nothing.
//
// Looks at kMaxLooked connections, others at each call: a client who holds many is among them.
void FindRoom(IoThread& thread, size_t place, const boost::asio::ip::address& newcomer, Room& best);

inline constexpr size_t kMaxLooked = 256;

}  // namespace inflight::tcp_listener
