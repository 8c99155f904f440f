// SPDX-License-Identifier: Apache-2.0
// Many clients at once, some of whom go away: what they are told and what is counted. Servers give
// each message back.
#include "shadow/grpc_proxy.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/clock.h"
#include "protocol/grpc_client/grpc_client.h"
#include "protocol/grpc_listener/echo_service.h"

namespace inflight::shadow {
namespace {

int64_t In(int64_t ms) { return Clock::System().NowNs() + ms * 1'000'000; }

// On the listener's threads, unlike EchoService without a record of the calls.
class Echo final : public grpc_listener::RpcHandler {
 public:
  std::shared_ptr<grpc_listener::RpcReactor> Start(
      std::shared_ptr<grpc_listener::Rpc> rpc) override {
    rpc->Read();
    return std::make_shared<Reactor>(std::move(rpc));
  }

 private:
  struct Reactor final : grpc_listener::RpcReactor {
    explicit Reactor(std::shared_ptr<grpc_listener::Rpc> its_rpc) : rpc(std::move(its_rpc)) {}
    void OnMessage(grpc_listener::RpcMessage message) override {
      rpc->Write(grpc_listener::Framed(message.bytes));
    }
    void OnWritten() override { rpc->Read(); }
    void OnHalfClose() override { rpc->Finish({}); }
    void OnCancel() override { rpc->Finish(Cancelled("")); }
    const std::shared_ptr<grpc_listener::Rpc> rpc;
  };
};

struct EchoedCall : grpc_client::GrpcListener {
  void OnMessage(std::string_view bytes) override { messages.emplace_back(bytes); }
  void OnEnd(const grpc_client::GrpcEnd& its_end) override {
    end = its_end;
    has_ended = true;
  }
  std::vector<std::string> messages;
  grpc_client::GrpcEnd end;
  bool has_ended = false;
};

std::unique_ptr<grpc_listener::GrpcListener> Listen(grpc_listener::RpcHandler& handler) {
  auto listener =
      grpc_listener::GrpcListener::Listen(handler, {.address = "127.0.0.1", .threads = 2});
  EXPECT_TRUE(listener.ok()) << listener.status().ToString();
  (*listener)->Run();
  return *std::move(listener);
}

// Calls of three messages, every fourth of which is cancelled before its end.
void CallThrough(int port, int num_calls) {
  grpc_client::GrpcClient client("127.0.0.1", port);
  for (int i = 0; i < num_calls; ++i) {
    EchoedCall answer;
    const std::string path = "/inference.GRPCInferenceService/ModelStreamInfer";
    const auto id = client.Start(path, "first", /*is_only=*/false, answer, In(30'000));
    client.Write(id, "second");
    client.Write(id, "third");
    if (i % 4 == 3) {
      client.Poll(In(i % 3));
      client.Cancel(id);
    } else {
      client.EndWrites(id);
    }
    while (!answer.has_ended) client.Poll(In(1000));
    if (i % 4 == 3) continue;
    EXPECT_EQ(answer.end.code, 0) << answer.end.ToString();
    EXPECT_EQ(answer.messages, (std::vector<std::string>{"first", "second", "third"}));
  }
}

TEST(GrpcProxy, ManyClientsAreAnsweredAndTheirCallsCompared) {
  constexpr int kNumClients = 6;
  constexpr int kNumCalls = 40;
  Echo echo;
  const auto old_server = Listen(echo);
  const auto new_server = Listen(echo);
  Report report(stdout, nullptr);
  auto proxy = GrpcProxy::Start({.old_server = {.host = "127.0.0.1", .port = old_server->port()},
                                 .new_server = {.host = "127.0.0.1", .port = new_server->port()}},
                                report);
  ASSERT_TRUE(proxy.ok()) << proxy.status().ToString();
  std::vector<std::thread> clients;
  for (int i = 0; i < kNumClients; ++i)
    clients.emplace_back([&] { CallThrough((*proxy)->port(), kNumCalls); });
  for (std::thread& client : clients) client.join();
  // A client has its answer before the new server may have ended.
  const int64_t until_ns = In(30'000);
  const int least = kNumClients * kNumCalls * 3 / 4;
  while (report.num_requests() < least && Clock::System().NowNs() < until_ns)
    std::this_thread::yield();
  proxy->reset();
  EXPECT_GE(report.num_requests(), least);
  EXPECT_EQ(report.num_unequal(), 0);
  old_server->Stop();
  new_server->Stop();
}

}  // namespace
}  // namespace inflight::shadow
