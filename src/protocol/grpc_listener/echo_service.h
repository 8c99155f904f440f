// SPDX-License-Identifier: Apache-2.0
// For tests and fuzzing: a service that gives each message back, and a thread for sessions that is
// the test's own.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "protocol/grpc_listener/rpc.h"
#include "protocol/grpc_listener/stream.h"
#include "protocol/grpc_listener/wire.h"

namespace inflight::grpc_listener {

inline constexpr size_t kMib = size_t{1} << 20;

inline std::string Framed(std::string_view bytes, bool is_compressed = false) {
  const Prefix prefix = MakePrefix(is_compressed, static_cast<uint32_t>(bytes.size()));
  return std::string(prefix.data(), prefix.size()).append(bytes);
}

// What a call was told, for a test that asks.
struct CallLog {
  std::shared_ptr<Rpc> rpc;
  std::vector<std::string> messages;
  bool is_half_closed = false;
  bool is_cancelled = false;
  bool is_done = false;
};

// "/echo" answers each message; "/hold" is finished by the test, where that keeps the calls;
// "/throw" throws.
class EchoService final : public RpcHandler {
 public:
  std::shared_ptr<RpcReactor> Start(std::shared_ptr<Rpc> rpc) override {
    calls.push_back(std::make_shared<CallLog>(CallLog{.rpc = keeps_rpcs ? rpc : nullptr}));
    rpc->Read();
    const bool is_held = keeps_rpcs && rpc->path() == "/hold";
    return std::make_shared<Reactor>(std::move(rpc), calls.back(), is_held);
  }

  bool keeps_rpcs = true;
  std::vector<std::shared_ptr<CallLog>> calls;

 private:
  class Reactor final : public RpcReactor {
   public:
    Reactor(std::shared_ptr<Rpc> rpc, std::shared_ptr<CallLog> log, bool is_held)
        : rpc_(std::move(rpc)), log_(std::move(log)), is_held_(is_held) {}

    void OnMessage(RpcMessage message) override {
      if (rpc_->path() == "/throw") throw std::runtime_error("from the service");
      log_->messages.push_back(message.bytes);
      if (rpc_->path() != "/echo") return rpc_->Read();
      rpc_->Write(Framed(message.bytes));
    }
    void OnWritten() override { rpc_->Read(); }
    void OnHalfClose() override {
      log_->is_half_closed = true;
      if (!is_held_) rpc_->Finish({});
    }
    void OnCancel() override {
      log_->is_cancelled = true;
      if (!is_held_) rpc_->Finish(Cancelled(""));
    }
    void OnDone() override { log_->is_done = true; }

   private:
    const std::shared_ptr<Rpc> rpc_;
    const std::shared_ptr<CallLog> log_;
    const bool is_held_;
  };
};

// The test's own, which is the only one.
class OwnThread final : public SessionThread {
 public:
  bool IsThis() const override { return true; }
  bool Post(std::function<void()> task) override {
    task();
    return true;
  }
};

}  // namespace inflight::grpc_listener
