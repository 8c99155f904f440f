// SPDX-License-Identifier: Apache-2.0
// Ranks of a group on this host, for tests.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "comm/rendezvous.h"
#include "comm/tcp.h"

namespace inflight::comm {

inline Deadline In(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}
// Ends a test that hangs; no test waits for it.
inline Deadline AfterLong() { return In(std::chrono::minutes(2)); }

// A port of loopback that nobody else is given while this lives: bound, and not listened on.
class FreePort {
 public:
  FreePort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }

  int number() const { return PortOf(socket_); }
  launch::World World(int rank, int size) const {
    return {.rank = rank,
            .size = size,
            .leader_address = "127.0.0.1",
            .leader_port = number(),
            .launcher = "test"};
  }

 private:
  Descriptor socket_;
};

inline const Agreement kAgreed{.version = "1.0", .hash = 0x0123456789abcdef};

inline Result<std::unique_ptr<Group>> JoinTest(
    const FreePort& port, int rank, int size,
    std::chrono::milliseconds silence = std::chrono::minutes(1)) {
  return Group::Join(port.World(rank, size), kAgreed, AfterLong(), {.silence = silence});
}

// Calls `body` of each rank from `first` on a thread of its own, with its group.
inline void RunRanks(const FreePort& port, int first, int size,
                     const std::function<void(Group&)>& body,
                     std::chrono::milliseconds silence = std::chrono::minutes(1)) {
  std::vector<std::thread> threads;
  for (int rank = first; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = JoinTest(port, rank, size, silence);
      ASSERT_TRUE(group.ok()) << "rank " << rank << ": " << group.status().ToString();
      body(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline std::vector<std::byte> BytesOfText(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// `count` bytes that tell from whom they are.
inline std::vector<std::byte> Pattern(int from, int to, size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(17 * from + 31 * to + static_cast<int>(i % 251));
  return bytes;
}

}  // namespace inflight::comm
