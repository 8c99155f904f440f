// SPDX-License-Identifier: Apache-2.0
// A port before the old server: clients get its answers, and each request goes to the new server
// too.
#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>

#include "protocol/http_listener/listening_server.h"
#include "shadow/both_servers.h"
#include "shadow/report.h"

namespace inflight::shadow {

struct ProxyOptions {
  http_listener::ListenerOptions listener{.name = "shadow", .address = "127.0.0.1"};
  ShadowOptions shadow;
  FILE* record = nullptr;  // where requests are written; null: nowhere
  int max_pending = 256;   // requests under way; of further ones the new server gets none
  size_t max_body_bytes = size_t{64} << 20;
};

class Proxy : public http_listener::ListeningServer {
 public:
  // `report` must outlive it.
  static Result<std::unique_ptr<Proxy>> Start(const ProxyOptions& options, Report& report);

  // As of ListeningServer, and waits for the rest of `drain` for the new server's answers to
  // what clients have asked.
  void Stop(std::chrono::milliseconds drain);

 private:
  using ListeningServer::ListeningServer;

  std::function<bool()> has_pending_;  // of its handler
};

}  // namespace inflight::shadow
