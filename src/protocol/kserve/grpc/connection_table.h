// SPDX-License-Identifier: Apache-2.0
// The connections of a port by the client (its IP address) that holds them, and who of them gives
// way where no more fit: no client can keep others out by the connections that it holds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

namespace inflight::kserve_grpc {

// Threads: one at a time.
class ConnectionTable {
 public:
  using Client = std::array<uint8_t, 16>;  // an IPv6 address; of IPv4 its mapped form

  struct Peer {
    Client client{};
    uint16_t port = 0;

    bool operator==(const Peer&) const = default;
  };

  void Add(int socket, const Peer& peer);  // in place of one with the same number, which has closed
  void Remove(int socket);                 // may be absent
  std::optional<Peer> Find(int socket) const;
  std::vector<int> sockets() const;
  size_t size() const { return peers_.size(); }

  // Of the client that holds most, where that is more than `newcomer` holds: the one on which
  // nothing came or went for longest, of some that are looked at.
  std::optional<int> GivesWayTo(const Client& newcomer) const;
  // The same for a newcomer of whom nothing is known: where one client holds more than one.
  std::optional<int> GivesWay() const;

 private:
  std::optional<int> QuietestOfMost(size_t held_by_newcomer) const;

  std::unordered_map<int, Peer> peers_;      // by socket
  std::map<Client, std::set<int>> sockets_;  // no empty ones
};

}  // namespace inflight::kserve_grpc
