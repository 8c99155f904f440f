// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/http_listener.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>  // before Boost 1.74 under C++20

#include "base/status_macros.h"
#include "protocol/http_listener/connection.h"
#include "protocol/tcp_listener/endpoints.h"
#include "protocol/tcp_listener/tcp_listener.h"

namespace inflight::http_listener {
namespace {

// A fraction of the shortest time-out.
std::chrono::milliseconds SweepInterval(const ListenerOptions& options) {
  std::chrono::milliseconds interval(250);
  for (const auto timeout : {options.header_timeout, options.body_timeout, options.idle_timeout,
                             options.write_timeout}) {
    if (timeout.count() > 0) interval = std::min(interval, timeout / 4);
  }
  return std::max(interval, std::chrono::milliseconds(10));
}

class Listener : public HttpListener {
 public:
  Listener(HttpHandler& handler, const ListenerOptions& options,
           std::shared_ptr<tls::ServerTls> tls)
      : context_(new ListenerContext{
            .handler = handler,
            .options = options,
            .connection = {.memory =
                               options.memory != nullptr ? options.memory : MemoryAccount::Make({}),
                           .tls = std::move(tls)}}),
        listener_({.name = options.name,
                   .reuse_port = options.reuse_port,
                   .threads = options.threads,
                   .max_connections = options.max_connections,
                   .sweep_interval = SweepInterval(options)},
                  [this](std::shared_ptr<IoThread> thread, tcp_listener::Socket socket,
                         boost::asio::ip::address client) {
                    return std::make_shared<Connection>(context_, std::move(thread),
                                                        std::move(socket), std::move(client));
                  }) {}

  Status Listen();
  void Run() { listener_.Run(); }

  int port() const override { return listener_.port(); }
  void Stop(std::chrono::milliseconds drain) override { listener_.Stop(drain); }

 private:
  const std::shared_ptr<const ListenerContext> context_;
  tcp_listener::TcpListener listener_;
};

Status Listener::Listen() {
  const ListenerOptions& options = context_->options;
  if (!options.socket_file.empty()) {
    return listener_.ListenOnFile(options.socket_file)
        .WithPrefix(options.name + " cannot listen on '" + options.socket_file + "'");
  }
  if (options.port < 0 || options.port > 65535) {
    return InvalidArgument(options.name + " port: got " + std::to_string(options.port) +
                           ", should be 0 (any) to 65535");
  }
  ASSIGN_OR_RETURN(auto endpoints,
                   tcp_listener::EndpointOf(options.name, options.address, options.port));
  return listener_.Listen(std::move(endpoints))
      .WithPrefix(options.name + " cannot listen on " + options.address + ":" +
                  std::to_string(options.port));
}

}  // namespace

Result<std::unique_ptr<HttpListener>> HttpListener::Start(HttpHandler& handler,
                                                          const ListenerOptions& options) {
  try {
    ASSIGN_OR_RETURN(auto tls, tls::MakePortTls(options.tls, "http/1.1"));
    auto listener = std::make_unique<Listener>(handler, options, std::move(tls));
    RETURN_IF_ERROR(listener->Listen());
    listener->Run();
    return std::unique_ptr<HttpListener>(std::move(listener));
  } catch (const std::exception& e) {
    return Unavailable(options.name + " listener: " + e.what());
  }
}

}  // namespace inflight::http_listener
