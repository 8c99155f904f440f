// SPDX-License-Identifier: Apache-2.0
// The front end that speaks the HTTP API of cog (docs/reference/protocol/cog.md): predictions of
// one model, as the predictor of cog-triton makes them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "protocol/cog/predictor.h"
#include "protocol/cog/webhooks.h"
#include "protocol/http_listener/listening_server.h"
#include "protocol/kserve/http/access.h"
#include "serving/server/server.h"

namespace inflight::cog {

struct CogOptions {
  http_listener::ListenerOptions listener{.name = "cog", .port = 5000};
  kserve_http::Access access;
  size_t max_input_bytes = 64 << 20;  // of a body; --http-max-input-size
  std::string model;                  // empty: `ensemble`, else the only one that is ready
  int concurrency = 64;               // predictions at a time; further ones are answered 409
  PredictorOptions predictor;
  WebhookOptions webhooks;
  // When the process began to set itself up, for /health-check.
  std::chrono::system_clock::time_point started_at = std::chrono::system_clock::now();
  std::function<void()> shutdown;  // what POST /shutdown does
};

class CogServer : public http_listener::ListeningServer {
 public:
  // As kserve_http::HttpServer::Start, before the models are loaded: until EndSetUp it is STARTING.
  // kInvalidArgument names an option that is wrong.
  static Result<std::unique_ptr<CogServer>> Start(serving::Server& server, CogOptions options);
  ~CogServer();

  // When the models are loaded, or have failed to be, which /health-check then says. Errors are for
  // who started the server: the model that is named is unknown, or answers with no text.
  Status EndSetUp();

  // After the server has ended what ran: lets the last webhooks go out, at most so long.
  void DrainWebhooks(std::chrono::milliseconds budget);

 private:
  class Handler;
  CogServer(std::unique_ptr<Handler> handler, Handler& same);

  Handler& handler_;
};

}  // namespace inflight::cog
