// SPDX-License-Identifier: Apache-2.0
// A port before the old server: clients get its answers, and each request goes to the new server
// too.
#pragma once

#include <cstdio>
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

 private:
  using ListeningServer::ListeningServer;
};

}  // namespace inflight::shadow
