// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/connection_table.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace inflight::kserve_grpc {
namespace {

constexpr size_t kMaxLooked = 64;  // each costs a call of the system

uint32_t QuietMs(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return std::min(info.tcpi_last_data_recv, info.tcpi_last_data_sent);
}

}  // namespace

void ConnectionTable::Add(int socket, const Peer& peer) {
  Remove(socket);
  peers_[socket] = peer;
  sockets_[peer.client].insert(socket);
}

void ConnectionTable::Remove(int socket) {
  const auto found = peers_.find(socket);
  if (found == peers_.end()) return;
  const auto held = sockets_.find(found->second.client);
  held->second.erase(socket);
  if (held->second.empty()) sockets_.erase(held);
  peers_.erase(found);
}

std::optional<ConnectionTable::Peer> ConnectionTable::Find(int socket) const {
  const auto found = peers_.find(socket);
  return found == peers_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<int> ConnectionTable::sockets() const {
  std::vector<int> sockets;
  for (const auto& [socket, peer] : peers_) sockets.push_back(socket);
  return sockets;
}

std::optional<int> ConnectionTable::GivesWayTo(const Client& newcomer) const {
  const auto held = sockets_.find(newcomer);
  return QuietestOfMost(held == sockets_.end() ? 0 : held->second.size());
}

std::optional<int> ConnectionTable::GivesWay() const { return QuietestOfMost(1); }

std::optional<int> ConnectionTable::QuietestOfMost(size_t held_by_newcomer) const {
  const auto most = std::max_element(
      sockets_.begin(), sockets_.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (most == sockets_.end() || most->second.size() <= held_by_newcomer) return std::nullopt;
  std::optional<int> quietest;
  uint32_t quiet_ms = 0;
  size_t num_looked = 0;
  for (const int socket : most->second) {
    if (num_looked++ == kMaxLooked) break;
    const uint32_t ms = QuietMs(socket);
    if (quietest && ms <= quiet_ms) continue;
    quietest = socket;
    quiet_ms = ms;
  }
  return quietest;
}

}  // namespace inflight::kserve_grpc
