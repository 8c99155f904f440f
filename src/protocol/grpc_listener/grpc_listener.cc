// SPDX-License-Identifier: Apache-2.0
#include "protocol/grpc_listener/grpc_listener.h"

#include <utility>

#include "base/status_macros.h"
#include "protocol/tcp_listener/endpoints.h"

namespace inflight::grpc_listener {
namespace {

constexpr int kUnpackers = 2;

}  // namespace

GrpcListener::GrpcListener(RpcHandler& handler, const GrpcListenerOptions& options)
    : unpackers_(kUnpackers, "grpc-unpack"),
      context_(new ListenerContext{
          .session = {.handler = handler,
                      .options = options.session,
                      .run_elsewhere =
                          [this](std::function<void()> task) { unpackers_.Post(std::move(task)); }},
          .connection = {.memory =
                             options.memory != nullptr ? options.memory : MemoryAccount::Make({}),
                         .tls = options.tls}}),
      listener_({.name = "gRPC",
                 .reuse_port = options.reuse_port,
                 .threads = options.threads,
                 .max_connections = options.max_connections},
                [this](std::shared_ptr<tcp_listener::IoThread> thread, tcp_listener::Socket socket,
                       boost::asio::ip::address client) {
                  return std::make_shared<Connection>(context_, std::move(thread),
                                                      std::move(socket), std::move(client));
                }) {}

Result<std::unique_ptr<GrpcListener>> GrpcListener::Listen(RpcHandler& handler,
                                                           const GrpcListenerOptions& options) {
  std::unique_ptr<GrpcListener> listener(new GrpcListener(handler, options));
  ASSIGN_OR_RETURN(auto endpoints, tcp_listener::EndpointsOfHost(options.address, options.port));
  RETURN_IF_ERROR(listener->listener_.Listen(std::move(endpoints)));
  return listener;
}

}  // namespace inflight::grpc_listener
