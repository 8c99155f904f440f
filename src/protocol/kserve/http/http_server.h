// SPDX-License-Identifier: Apache-2.0
// KServe v2 with Triton's extensions over HTTP: health, metadata, configuration, statistics, index,
// infer, generate, generate_stream (spec/triton-protocol.md 1).
#pragma once

#include <cstddef>
#include <memory>

#include "protocol/http_listener/listening_server.h"
#include "protocol/kserve/access/header_forward.h"
#include "protocol/kserve/access/restriction.h"
#include "serving/server.h"

namespace inflight::kserve_http {

struct HttpOptions {
  http_listener::ListenerOptions listener{.name = "HTTP", .port = 8000};

  // Bound of a body and of each tensor made from JSON; 400 beyond it. --http-max-input-size
  size_t max_input_bytes = 64 << 20;
  // Bound of a body that brings binary tensors behind its JSON, which max_input_bytes leaves alone
  // (spec 1.6). Memory is taken as bytes arrive, never by what a client announces.
  size_t max_binary_body_bytes = size_t{1} << 30;

  kserve::Restrictions restrictions;     // --http-restricted-api
  kserve::HeaderForward header_forward;  // --http-header-forward-pattern
};

class HttpServer : public http_listener::ListeningServer {
 public:
  // Listens and serves at once. `server` must outlive the HttpServer. Stop cancels the requests
  // that outlast its time.
  static Result<std::unique_ptr<HttpServer>> Start(serving::Server& server, HttpOptions options);

 private:
  using ListeningServer::ListeningServer;
};

}  // namespace inflight::kserve_http
