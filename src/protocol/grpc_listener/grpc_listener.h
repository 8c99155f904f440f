// SPDX-License-Identifier: Apache-2.0
// A gRPC server: HTTP/2 by nghttp2, sockets and TLS by Asio; what to answer is the service's.
//
// Understands unary and streaming calls, messages that are compressed by gzip or deflate,
// deadlines, cancellation, keep-alive and trailers. Source: "gRPC over HTTP2", RFC 9113.
//
// Threads: those of tcp_listener/, and two that take messages which are large or compressed.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/memory_account.h"
#include "base/worker_pool.h"
#include "inflight/status.h"
#include "protocol/grpc_listener/connection.h"
#include "protocol/tcp_listener/tcp_listener.h"
#include "protocol/tls/server_tls.h"

namespace inflight::grpc_listener {

struct GrpcListenerOptions {
  std::string address = "0.0.0.0";  // a host, an IPv6 address, or gRPC's `ipv6:[::1]`
  int port = 0;                     // 0 = one is picked
  bool reuse_port = false;
  int threads = 0;  // 0 = by cores, 1 to 4
  int max_connections = 16384;
  SessionOptions session;
  // Charged with what connections hold. Null: one of the listener's own, with the default limits.
  std::shared_ptr<MemoryAccount> memory;
  std::shared_ptr<tls::ServerTls> tls;  // null: plain
};

class GrpcListener {
 public:
  // Binds and listens. The handler outlives the result. kUnavailable: the system's reason.
  static Result<std::unique_ptr<GrpcListener>> Listen(RpcHandler& handler,
                                                      const GrpcListenerOptions& options);

  int port() const { return listener_.port(); }
  void Run() { listener_.Run(); }

  // Stops accepting; lets the calls that run finish for `drain`, then disconnects them, which
  // cancels them.
  void Disconnect(std::chrono::milliseconds drain) { listener_.Disconnect(drain); }
  // The same, and ends the threads.
  void Stop() { listener_.Stop(std::chrono::milliseconds(0)); }

 private:
  GrpcListener(RpcHandler& handler, const GrpcListenerOptions& options);

  WorkerPool unpackers_;
  const std::shared_ptr<const ListenerContext> context_;
  tcp_listener::TcpListener listener_;
};

}  // namespace inflight::grpc_listener
