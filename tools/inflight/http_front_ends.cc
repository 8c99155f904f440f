// SPDX-License-Identifier: Apache-2.0
#include "http_front_ends.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "base/status_macros.h"
#include "cog_options.h"
#include "environment.h"
#include "openai_options.h"
#include "protocol/anthropic/messages.h"
#include "protocol/kserve/http/access.h"
#include "protocol/metrics/metrics_config.h"
#include "protocol/page/page_handler.h"
#include "protocol/tcp_listener/endpoints.h"
#include "reach.h"

namespace inflight::tool {
namespace {

using http_listener::HttpRequest;

// Where another front end listens, by the limits of the HTTP one.
http_listener::ListenerOptions ListenAt(const http_listener::ListenerOptions& place,
                                        const ServeOptions& options) {
  http_listener::ListenerOptions listener = options.http;
  listener.name = place.name;
  listener.address = place.address;
  listener.port = place.port;
  listener.threads = place.threads;
  listener.reuse_port = false;
  listener.tls = {};  // the platform in front ends it
  return listener;
}

bool ParsePort(std::string_view text, int& port) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size() && port >= 0 && port <= 65535;
}

Status CheckSafePort(const ServeOptions& options) {
  const std::string& range = options.sagemaker_safe_port_range;
  if (range.empty()) return Status::Ok();
  const size_t dash = range.find('-');
  int low = 0;
  int high = 0;
  const bool is_range = dash != std::string::npos &&
                        ParsePort(std::string_view(range).substr(0, dash), low) &&
                        ParsePort(std::string_view(range).substr(dash + 1), high) && low <= high;
  if (!is_range) {
    return InvalidArgument("--sagemaker-safe-port-range: got '" + range +
                           "', expected is <low>-<high> of ports");
  }
  const int port = options.sagemaker.port;
  if (low <= port && port <= high) return Status::Ok();
  return InvalidArgument("--sagemaker-port: got " + std::to_string(port) +
                         ", --sagemaker-safe-port-range allows " + range);
}

// Of a port at this address, or of a Unix socket, which has no name that a page could take.
Result<kserve_http::Access> AccessAt(const ServeOptions& options, const std::string& address,
                                     kserve::Entrance entrance = kserve::Entrance::kHttp) {
  const std::vector<std::string>& hosts = options.http_allowed_host;
  for (const std::string& name : hosts) RETURN_IF_ERROR(kserve_http::CheckHostName(name));
  ASSIGN_OR_RETURN(auto cors_origins, http_listener::CrossOrigins::Make(options.cors_origin));
  return kserve_http::Access{
      .web_pages = {.allowed_hosts = hosts,
                    .knows_its_names = entrance != kserve::Entrance::kAdminSocket &&
                                       (tcp_listener::IsLoopback(address) || !hosts.empty()),
                    .cors_origins = std::move(cors_origins)},
      .entrance = entrance,
      .policy = options.policy};
}

Result<kserve_http::EndpointOptions> Endpoints(
    const ServeOptions& options, const std::string& address,
    kserve::Entrance entrance = kserve::Entrance::kHttp) {
  kserve_http::EndpointOptions endpoints = options.endpoints;
  ASSIGN_OR_RETURN(endpoints.access, AccessAt(options, address, entrance));
  ASSIGN_OR_RETURN(endpoints.header_forward,
                   kserve::HeaderForward::Make(options.http_header_forward_pattern));
  return endpoints;
}

// Of OpenAI's API wherever it is answered, with Anthropic's behind the same pipeline.
Result<openai::OpenAiOptions> OpenAiAt(const ServeOptions& options,
                                       const kserve_http::Access& access) {
  RETURN_IF_ERROR(openai::CheckFormats(options.message_formats));
  return openai::OpenAiOptions{.access = access,
                               .max_input_bytes = options.endpoints.max_input_bytes,
                               .aliases = ModelAliases(options),
                               .formats = options.message_formats,
                               .responses = options.stored_responses,
                               .more_routes = anthropic::Routes()};
}

// What answers OpenAI's API beside KServe at this address; null where it is not asked for.
Result<std::unique_ptr<http_listener::PathHandler>> OpenAiBeside(
    serving::Server& server, const ServeOptions& options, const kserve_http::Access& access) {
  if (!options.allow_openai) return std::unique_ptr<http_listener::PathHandler>();
  ASSIGN_OR_RETURN(auto asked, OpenAiAt(options, access));
  return openai::MakeHandler(server, std::move(asked));
}

// The page for browsers; null where it has nothing to talk to. It shows metrics where who may call
// this port may read them anyway: it has their page, is this machine's alone, or asks for keys.
std::unique_ptr<http_listener::PathHandler> PageBeside(const ServeOptions& options,
                                                       const kserve_http::Access& access,
                                                       const metrics::MetricsServer* metrics) {
  if (!options.allow_page || !options.allow_openai) return nullptr;
  page::PageOptions page{.access = access, .metrics_page = nullptr};
  const bool shows_metrics = options.http_metrics || options.policy->asks_for_keys() ||
                             tcp_listener::IsLoopback(options.http.address);
  if (metrics != nullptr && shows_metrics)
    page.metrics_page = [metrics](bool with_reuse) { return metrics->Page(with_reuse); };
  return page::MakeHandler(std::move(page));
}

constexpr int kAdminConnections = 256;

// All endpoints of HTTP, by its limits.
Result<std::unique_ptr<kserve_http::HttpServer>> StartAdmin(
    serving::Server& server, const ServeOptions& options, kserve::Entrance entrance,
    http_listener::ListenerOptions listener) {
  listener.name = "admin";
  listener.threads = 1;
  listener.reuse_port = false;
  listener.max_connections = std::min(listener.max_connections, kAdminConnections);
  kserve_http::HttpOptions http;
  http.listener = std::move(listener);
  ASSIGN_OR_RETURN(http.endpoints, Endpoints(options, http.listener.address, entrance));
  ASSIGN_OR_RETURN(auto beside, OpenAiBeside(server, options, http.endpoints.access));
  std::vector<std::unique_ptr<http_listener::PathHandler>> paths;
  paths.push_back(std::move(beside));
  auto started = kserve_http::HttpServer::Start(server, http, std::move(paths));
  const char* option =
      entrance == kserve::Entrance::kAdminSocket ? "--admin-socket" : "--admin-port";
  if (!started.ok()) return started.status().WithPrefix(option);
  return started;
}

}  // namespace

Result<std::unique_ptr<metrics::MetricsServer>> StartMetrics(serving::Server& server,
                                                             const ServeOptions& options) {
  metrics::MetricsOptions metrics = options.metrics;
  metrics.listener.address = MetricsAddress(options);
  ASSIGN_OR_RETURN(const auto config, metrics::ParseMetricsConfig(options.metrics_config));
  metrics.page.with_latency_counters = config.counter_latencies;
  ASSIGN_OR_RETURN(const kserve_http::Access access, AccessAt(options, metrics.listener.address));
  metrics.admit = [access](HttpRequest& request) {
    return kserve_http::Admit(access, kserve::Api::kMetrics, request);
  };
  metrics.sees_reuse = [access](const HttpRequest& request) {
    return kserve_http::SeesReuse(access, request);
  };
  return metrics::MetricsServer::Start(server, metrics);
}

Result<std::unique_ptr<kserve_http::HttpServer>> StartHttp(serving::Server& server,
                                                           const ServeOptions& options,
                                                           const metrics::MetricsServer* metrics) {
  kserve_http::HttpOptions http;
  http.listener = options.http;
  ASSIGN_OR_RETURN(http.endpoints, Endpoints(options, http.listener.address));
  if (options.http_metrics && metrics == nullptr)
    return InvalidArgument("--http-metrics", "needs --allow-metrics=true");
  if (options.http_metrics)
    http.endpoints.metrics_page = [metrics](bool with_reuse) { return metrics->Page(with_reuse); };
  std::vector<std::unique_ptr<http_listener::PathHandler>> beside(2);
  ASSIGN_OR_RETURN(beside[0], OpenAiBeside(server, options, http.endpoints.access));
  beside[1] = PageBeside(options, http.endpoints.access, metrics);
  return kserve_http::HttpServer::Start(server, http, std::move(beside));
}

Result<std::unique_ptr<kserve_http::HttpServer>> StartAdminPort(serving::Server& server,
                                                                const ServeOptions& options) {
  http_listener::ListenerOptions listener = options.http;
  listener.address = AdminAddress(options);
  listener.port = *options.admin_port;
  return StartAdmin(server, options, kserve::Entrance::kAdminPort, std::move(listener));
}

Result<std::unique_ptr<kserve_http::HttpServer>> StartAdminSocket(serving::Server& server,
                                                                  const ServeOptions& options) {
  http_listener::ListenerOptions listener = options.http;
  listener.address.clear();
  listener.socket_file = options.admin_socket;
  listener.tls = {};
  return StartAdmin(server, options, kserve::Entrance::kAdminSocket, std::move(listener));
}

Result<std::unique_ptr<sagemaker::SageMakerServer>> StartSageMaker(serving::Server& server,
                                                                   const ServeOptions& options) {
  RETURN_IF_ERROR(CheckSafePort(options));
  sagemaker::SageMakerOptions sagemaker;
  sagemaker.listener = ListenAt(options.sagemaker, options);
  ASSIGN_OR_RETURN(sagemaker.endpoints, Endpoints(options, sagemaker.listener.address));
  sagemaker.ping_mode = Environment("SAGEMAKER_TRITON_PING_MODE");
  sagemaker.inference_type = Environment("SAGEMAKER_TRITON_INFERENCE_TYPE");
  sagemaker.default_model = Environment("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME");
  return sagemaker::SageMakerServer::Start(server, std::move(sagemaker));
}

Result<std::unique_ptr<vertex_ai::VertexAiServer>> StartVertexAi(
    serving::Server& server, const ServeOptions& options, const metrics::MetricsServer* metrics) {
  vertex_ai::VertexAiOptions vertex_ai;
  vertex_ai.listener = ListenAt(options.vertex_ai, options);
  ASSIGN_OR_RETURN(vertex_ai.endpoints, Endpoints(options, vertex_ai.listener.address));
  vertex_ai.health_route = Environment("AIP_HEALTH_ROUTE");
  vertex_ai.predict_route = Environment("AIP_PREDICT_ROUTE");
  vertex_ai.default_model = options.vertex_ai_default_model;
  if (metrics != nullptr)
    vertex_ai.metrics_page = [metrics](bool with_reuse) { return metrics->Page(with_reuse); };
  return vertex_ai::VertexAiServer::Start(server, std::move(vertex_ai));
}

Result<std::unique_ptr<cog::CogServer>> StartCog(serving::Server& server,
                                                 const ServeOptions& options) {
  cog::CogOptions cog = options.cog;
  RETURN_IF_ERROR(SetFromCogEnvironment(cog));
  cog.listener.port = *options.cog_port;
  cog.listener = ListenAt(cog.listener, options);
  ASSIGN_OR_RETURN(cog.access, AccessAt(options, cog.listener.address));
  cog.max_input_bytes = options.endpoints.max_input_bytes;
  cog.shutdown = [] { kill(getpid(), SIGTERM); };  // which the main thread waits for
  return cog::CogServer::Start(server, std::move(cog));
}

Result<std::unique_ptr<openai::OpenAiServer>> StartOpenAi(serving::Server& server,
                                                          const ServeOptions& options) {
  http_listener::ListenerOptions place = options.openai;
  place.port = *options.openai_port;
  http_listener::ListenerOptions listener = ListenAt(place, options);
  ASSIGN_OR_RETURN(const kserve_http::Access access, AccessAt(options, listener.address));
  ASSIGN_OR_RETURN(auto asked, OpenAiAt(options, access));
  listener.tls = options.http.tls;
  return openai::OpenAiServer::Start(server, listener, std::move(asked));
}

}  // namespace inflight::tool
