// SPDX-License-Identifier: Apache-2.0
// What the front ends over HTTP share: the endpoints, their limits, who may ask, and threads for
// what takes long. A front end says which endpoint a request means.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/worker_pool.h"
#include "protocol/http_listener/http_message.h"
#include "protocol/kserve/access/api.h"
#include "protocol/kserve/access/header_forward.h"
#include "protocol/kserve/http/access.h"
#include "protocol/kserve/http/binary_framing.h"
#include "protocol/kserve/http/endpoint_table.h"
#include "protocol/kserve/http/endpoints.h"
#include "serving/server/server.h"

namespace inflight::kserve_http {

struct EndpointOptions {
  // Bound of a body and of each tensor made from JSON; 400 beyond it. --http-max-input-size
  size_t max_input_bytes = 64 << 20;
  // Bound of a body that brings binary tensors behind its JSON, which max_input_bytes leaves alone
  // (docs/reference/protocol/http.md, "Limits"). Memory is taken as bytes arrive, never by what a
  // client announces.
  size_t max_binary_body_bytes = size_t{1} << 30;

  Access access;
  kserve::HeaderForward header_forward;  // --http-header-forward-pattern

  BinaryFraming framing;
  bool with_compression = true;
  // Members of generate that an LLM has no use for are errors, not warnings. --strict-parameters
  bool strict_parameters = false;

  // GET /metrics answers this, beside the endpoints of KServe; null: there is no such path. It is
  // for who may read metrics. --http-metrics
  std::function<std::string(bool with_reuse)> metrics_page;
};

class EndpointHandler : public http_listener::HttpHandler {
 public:
  // `server` must outlive the handler.
  EndpointHandler(serving::Server& server, EndpointOptions options);

  size_t MaxBodyBytes(const http_listener::HttpRequest& head) const final;
  http_listener::HttpResponse BodyTooLarge(const http_listener::HttpRequest& head,
                                           std::optional<uint64_t> size) const final;
  http_listener::HttpResponse BadRequest(std::string_view reason) const final;

 protected:
  // The endpoint that a request with this head means, whose body is limited accordingly; null where
  // it means no endpoint of KServe.
  virtual const Endpoint* EndpointOf(const http_listener::HttpRequest& head) const = 0;

  // What other requests than those for health get until the models are there.
  std::optional<http_listener::HttpResponse> RefusalWhileLoading(kserve::Api api) const;

  const Access& access() const { return options_.access; }
  const std::function<std::string(bool)>& metrics_page() const { return options_.metrics_page; }

  // Answers as the endpoint does, whatever the method; it must not be refused. What waits or has a
  // large body does so on another thread.
  void Run(Route route, http_listener::HttpRequest request,
           std::shared_ptr<http_listener::HttpResponder> responder);

  serving::Server& server() const { return context_.server; }

 private:
  void Dispatch(const Route& route, const http_listener::HttpRequest& request,
                const std::shared_ptr<http_listener::HttpResponder>& responder);

  const EndpointOptions options_;
  const Context context_;
  // Last: their tasks use the members above.
  WorkerPool large_bodies_;
  WorkerPool model_control_;
};

}  // namespace inflight::kserve_http
