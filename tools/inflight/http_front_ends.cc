// SPDX-License-Identifier: Apache-2.0
#include "http_front_ends.h"

#include <chrono>

#include "environment.h"

namespace inflight::tool {
namespace {

using std::chrono::milliseconds;

void SetListener(const ListenerOptions& from, int threads, const ServeOptions& options,
                 http_listener::ListenerOptions& to) {
  to.address = from.address;
  to.port = from.port;
  to.threads = threads;
  to.max_connections = options.http_max_connections;
  to.max_total_body_bytes = static_cast<size_t>(options.http_max_total_input_bytes);
  to.max_stream_buffer_bytes = static_cast<size_t>(options.http_max_stream_buffer_bytes);
  to.header_timeout = milliseconds(options.http_header_timeout_ms);
  to.body_timeout = milliseconds(options.http_body_timeout_ms);
  to.idle_timeout = milliseconds(options.http_idle_timeout_ms);
  to.write_timeout = milliseconds(options.http_write_timeout_ms);
}

Result<kserve_http::EndpointOptions> Endpoints(const ServeOptions& options) {
  kserve_http::EndpointOptions endpoints;
  endpoints.max_input_bytes = static_cast<size_t>(options.http_max_input_bytes);
  ASSIGN_OR_RETURN(endpoints.restrictions,
                   kserve::Restrictions::Parse(options.http_restricted_api));
  ASSIGN_OR_RETURN(endpoints.header_forward,
                   kserve::HeaderForward::Make(options.http_header_forward_pattern));
  return endpoints;
}

}  // namespace

Result<std::unique_ptr<kserve_http::HttpServer>> StartHttp(serving::Server& server,
                                                           const ServeOptions& options) {
  kserve_http::HttpOptions http;
  SetListener(options.http, options.http_threads, options, http.listener);
  ASSIGN_OR_RETURN(http.endpoints, Endpoints(options));
  return kserve_http::HttpServer::Start(server, http);
}

Result<std::unique_ptr<vertex_ai::VertexAiServer>> StartVertexAi(
    serving::Server& server, const ServeOptions& options, const metrics::MetricsServer* metrics) {
  vertex_ai::VertexAiOptions vertex_ai;
  SetListener(options.vertex_ai, options.vertex_ai_threads, options, vertex_ai.listener);
  ASSIGN_OR_RETURN(vertex_ai.endpoints, Endpoints(options));
  vertex_ai.health_route = Environment("AIP_HEALTH_ROUTE");
  vertex_ai.predict_route = Environment("AIP_PREDICT_ROUTE");
  vertex_ai.default_model = options.vertex_ai_default_model;
  if (metrics != nullptr) vertex_ai.metrics_page = [metrics] { return metrics->Page(); };
  return vertex_ai::VertexAiServer::Start(server, std::move(vertex_ai));
}

}  // namespace inflight::tool
