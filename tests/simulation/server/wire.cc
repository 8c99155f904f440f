// SPDX-License-Identifier: Apache-2.0
#include "simulation/server/wire.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace inflight::testing {
namespace {

constexpr size_t kMaxHeldBytes = 256 * 1024;  // of one direction: then the sender has to wait

std::pair<Descriptor, Descriptor> ConnectedSockets() {
  std::array<int, 2> ends{};
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace

Wire::Wire() {
  std::tie(client_end_, client_side_) = ConnectedSockets();
  std::tie(server_end_, server_side_) = ConnectedSockets();
}

bool Wire::Fill(int socket, std::string& bytes) {
  std::array<char, 16 * 1024> buffer;
  while (bytes.size() < kMaxHeldBytes) {
    const ssize_t count = recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (count <= 0) return false;
    bytes.append(buffer.data(), static_cast<size_t>(count));
    if (static_cast<size_t>(count) < buffer.size()) return true;
  }
  return true;
}

void Wire::Drain(int socket, std::string& bytes, size_t at_most) {
  if (bytes.empty() || at_most == 0) return;
  const ssize_t count =
      send(socket, bytes.data(), std::min(bytes.size(), at_most), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count > 0) {
    bytes.erase(0, static_cast<size_t>(count));
  } else if (count < 0 && errno != EAGAIN && errno != EINTR) {
    bytes.clear();  // nobody is there to have it
  }
}

void Wire::Carry(size_t to_server, size_t to_client) {
  if (is_cut_) return;
  if (!has_client_ended_) has_client_ended_ = !Fill(client_side_.get(), to_server_);
  if (!has_server_ended_) has_server_ended_ = !Fill(server_side_.get(), to_client_);
  Drain(server_side_.get(), to_server_, to_server);
  Drain(client_side_.get(), to_client_, to_client);
  if (has_client_ended_ && to_server_.empty()) shutdown(server_side_.get(), SHUT_WR);
  if (has_server_ended_ && to_client_.empty()) shutdown(client_side_.get(), SHUT_WR);
}

void Wire::Cut() {
  is_cut_ = true;
  client_side_ = {};
  server_side_ = {};
}

}  // namespace inflight::testing
