// SPDX-License-Identifier: Apache-2.0
// Connections over real sockets; the test does with them what gRPC does.
#include "protocol/kserve/grpc/acceptor.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "protocol/http_listener/test_client.h"

namespace inflight::kserve_grpc {
namespace {

using http_listener::TestClient;
using std::chrono::milliseconds;

constexpr int kPatienceMs = 10'000;

class AcceptorTest : public ::testing::Test {
 protected:
  void Start(int max_connections) {
    auto acceptor = Acceptor::Listen({.address = "127.0.0.1", .max_connections = max_connections});
    ASSERT_TRUE(acceptor.ok()) << acceptor.status().ToString();
    acceptor_ = *std::move(acceptor);
    acceptor_->Start([this](int socket) {
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket);
      arrived_.notify_all();
    });
  }

  ~AcceptorTest() override {
    if (acceptor_) acceptor_->Stop();
    for (const int socket : sockets_) close(socket);
  }

  // Of the next connection; -1 where none comes.
  int Take(int patience_ms = kPatienceMs) {
    std::unique_lock lock(mutex_);
    const bool has_come = arrived_.wait_for(lock, milliseconds(patience_ms),
                                            [this] { return num_taken_ < sockets_.size(); });
    return has_come ? sockets_[num_taken_++] : -1;
  }

  // As gRPC ends a connection; without a shutdown, as when its close overtakes what tells of it.
  void End(int socket, bool shuts_down) {
    if (shuts_down) shutdown(socket, SHUT_RDWR);
    close(socket);
    const std::lock_guard lock(mutex_);
    std::erase(sockets_, socket);
    --num_taken_;
  }

  int port() const { return acceptor_->port(); }

  std::unique_ptr<Acceptor> acceptor_;

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<int> sockets_;
  size_t num_taken_ = 0;
};

bool IsShutDown(int socket, int timeout_ms) {
  pollfd end{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return poll(&end, 1, timeout_ms) == 1;
}

TEST_F(AcceptorTest, HandsConnectionsOver) {
  Start(2);
  TestClient client(port());
  const int socket = Take();
  ASSERT_GE(socket, 0);
  client.Send("ping");
  char received[4] = {};
  pollfd readable{.fd = socket, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&readable, 1, kPatienceMs), 1);
  EXPECT_EQ(read(socket, received, sizeof received), 4);
  EXPECT_EQ(std::string(received, 4), "ping");
}

TEST_F(AcceptorTest, QuietestOfTheClientThatHoldsMostGivesWay) {
  Start(4);
  TestClient other(port(), "127.0.0.3");
  const int of_other = Take();
  std::vector<std::unique_ptr<TestClient>> held;
  std::vector<int> sockets;
  for (int i = 0; i < 3; ++i) {
    held.push_back(std::make_unique<TestClient>(port(), "127.0.0.2"));
    sockets.push_back(Take());
  }
  std::this_thread::sleep_for(milliseconds(100));  // the system tells times in milliseconds
  for (const int i : {0, 2}) {
    held[i]->Send("x");
    pollfd readable{.fd = sockets[i], .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&readable, 1, kPatienceMs), 1);
  }
  TestClient newcomer(port());
  EXPECT_GE(Take(), 0);
  EXPECT_TRUE(IsShutDown(sockets[1], kPatienceMs));
  EXPECT_TRUE(held[1]->IsClosedByServer());
  for (const int socket : {sockets[0], sockets[2], of_other}) EXPECT_FALSE(IsShutDown(socket, 0));
}

TEST_F(AcceptorTest, NewcomerOfTheClientThatHoldsMostIsClosed) {
  Start(2);
  TestClient first(port());
  TestClient second(port());
  const int sockets[] = {Take(), Take()};
  TestClient third(port());
  EXPECT_TRUE(third.IsClosedByServer());
  for (const int socket : sockets) EXPECT_FALSE(IsShutDown(socket, 0));
}

TEST_F(AcceptorTest, ConnectionThatHasEndedMakesRoom) {
  Start(1);
  for (const bool shuts_down : {true, false, true}) {
    const auto deadline = std::chrono::steady_clock::now() + milliseconds(kPatienceMs);
    int socket = -1;
    while (socket < 0) {  // the last one's end and the newcomer come by two ways
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      const TestClient client(port());
      socket = Take(/*patience_ms=*/50);
    }
    End(socket, shuts_down);
  }
}

TEST_F(AcceptorTest, StopClosesThePortAndLeavesConnections) {
  Start(2);
  TestClient client(port());
  const int socket = Take();
  acceptor_->Stop();
  EXPECT_FALSE(TestClient(port()).Send("x"));
  EXPECT_FALSE(IsShutDown(socket, 0));
}

TEST(AcceptorAddressTest, BothFamiliesAreServedWhereTheAddressIsAny) {
  for (const char* address : {"0.0.0.0", "localhost", "ipv4:127.0.0.1"}) {
    auto acceptor = Acceptor::Listen({.address = address});
    ASSERT_TRUE(acceptor.ok()) << acceptor.status().ToString();
    EXPECT_TRUE(TestClient((*acceptor)->port()).Send("x")) << address;
  }
}

TEST(AcceptorAddressTest, HostThatIsUnknownIsAnError) {
  const std::string host(300, 'x');  // longer than names are: nobody is asked for it
  const auto acceptor = Acceptor::Listen({.address = host});
  EXPECT_EQ(acceptor.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(acceptor.status().message().find(host), std::string::npos);
}

}  // namespace
}  // namespace inflight::kserve_grpc
