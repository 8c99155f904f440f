// SPDX-License-Identifier: Apache-2.0
// A port before the old server for clients of gRPC: they get its answers, and each call goes to the
// new server too (docs/shadow.md, "Live requests").
//
// Threads: those of the listener, and one for each server.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>

#include "protocol/grpc_listener/grpc_listener.h"
#include "shadow/both_servers.h"
#include "shadow/grpc_call.h"
#include "shadow/report.h"

namespace inflight::shadow {

struct GrpcProxyOptions {
  grpc_listener::GrpcListenerOptions listener{.address = "127.0.0.1"};
  GrpcAddress old_server;
  GrpcAddress new_server;
  ShadowOptions shadow;    // but for its servers
  FILE* record = nullptr;  // where calls are written; null: nowhere
  int max_pending = 256;   // calls under way; of further ones the new server gets none
};

class GrpcProxy {
 public:
  // `report` must outlive it.
  static Result<std::unique_ptr<GrpcProxy>> Start(const GrpcProxyOptions& options, Report& report);
  ~GrpcProxy();  // Stop(0)

  int port() const;
  // Lets the calls that run finish for `drain`.
  void Stop(std::chrono::milliseconds drain);

 private:
  class Handler;
  explicit GrpcProxy(std::unique_ptr<Handler> handler);

  std::unique_ptr<Handler> handler_;
  std::unique_ptr<grpc_listener::GrpcListener> listener_;  // stops before the handler goes
};

}  // namespace inflight::shadow
