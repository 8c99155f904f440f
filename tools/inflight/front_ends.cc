// SPDX-License-Identifier: Apache-2.0
#include "front_ends.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "reach.h"

namespace inflight::tool {

using std::chrono::milliseconds;

Result<FrontEnds> OpenPorts(serving::Server& server, const ServeOptions& options) {
  FrontEnds fronts;
  if (options.allow_grpc) {
    ASSIGN_OR_RETURN(fronts.grpc, StartGrpc(server, options));
  }
  if (options.allow_metrics) {
    ASSIGN_OR_RETURN(fronts.metrics, StartMetrics(server, options));
  }
  if (options.allow_http) {
    ASSIGN_OR_RETURN(fronts.http, StartHttp(server, options, fronts.metrics.get()));
  }
  if (options.admin_port) {
    ASSIGN_OR_RETURN(fronts.admin_port, StartAdminPort(server, options));
  }
  if (!options.admin_socket.empty()) {
    ASSIGN_OR_RETURN(fronts.admin_socket, StartAdminSocket(server, options));
  }
  if (options.allow_sagemaker) {
    ASSIGN_OR_RETURN(fronts.sagemaker, StartSageMaker(server, options));
  }
  if (options.openai_port) {
    ASSIGN_OR_RETURN(fronts.openai, StartOpenAi(server, options));
  }
  if (options.cog_port) {
    ASSIGN_OR_RETURN(fronts.cog, StartCog(server, options));
  }
  std::string places;
  if (fronts.http) places = fmt::format("HTTP at {}:{}", options.http.address, fronts.http->port());
  if (fronts.grpc)
    places += fmt::format("{}gRPC at {}:{}", places.empty() ? "" : ", ", options.grpc.address,
                          fronts.grpc->port());
  if (fronts.cog)
    places += fmt::format("{}cog at {}:{}", places.empty() ? "" : ", ",
                          options.cog.listener.address, fronts.cog->port());
  if (!places.empty()) logging::Info("Listening, not ready until models are loaded: " + places);
  return fronts;
}

Status OpenPortsOfModels(serving::Server& server, const ServeOptions& options, FrontEnds& fronts) {
  if (options.allow_vertex_ai) {
    ASSIGN_OR_RETURN(fronts.vertex_ai, StartVertexAi(server, options, fronts.metrics.get()));
  }
  if (fronts.cog) RETURN_IF_ERROR(fronts.cog->EndSetUp());
  ASSIGN_OR_RETURN(fronts.shadow,
                   ShadowOf::Start(options, PortOf(fronts.http), PortOf(fronts.grpc)));
  return Status::Ok();
}

void LogStarted(const ServeOptions& options, const FrontEnds& fronts) {
  const auto log = [](std::string_view service, const std::string& address, const auto& front) {
    if (front) logging::Info(fmt::format("Started {} at {}:{}", service, address, front->port()));
  };
  log("GRPCInferenceService", options.grpc.address, fronts.grpc);
  log("HTTPService", options.http.address, fronts.http);
  log("Metrics Service", MetricsAddress(options), fronts.metrics);
  log("Administration Service", AdminAddress(options), fronts.admin_port);
  if (fronts.admin_socket)
    logging::Info("Started Administration Service at " + options.admin_socket);
  log("Sagemaker HTTPService", options.sagemaker.address, fronts.sagemaker);
  log("Vertex AI HTTPService", options.vertex_ai.address, fronts.vertex_ai);
  log("cog HTTPService", options.cog.listener.address, fronts.cog);
  log("OpenAI HTTPService", options.openai.address, fronts.openai);
  log("Shadow of " + options.shadow_of, ShadowAddress(options), fronts.shadow);
}

Status WritePortFile(const std::string& path, const FrontEnds& fronts) {
  if (path.empty()) return Status::Ok();
  return WriteFile(
      path,
      fmt::format("{{\"http\": {}, \"grpc\": {}, \"metrics\": {}, \"admin\": "
                  "{}, \"sagemaker\": {}, \"vertex_ai\": {}, \"cog\": {}, \"openai\": {}, "
                  "\"shadow\": {}}}\n",
                  PortOf(fronts.http), PortOf(fronts.grpc), PortOf(fronts.metrics),
                  PortOf(fronts.admin_port), PortOf(fronts.sagemaker), PortOf(fronts.vertex_ai),
                  PortOf(fronts.cog), PortOf(fronts.openai), PortOf(fronts.shadow)));
}

bool Drain(FrontEnds& fronts, serving::Server& server, int64_t budget_ms) {
  const Clock& clock = Clock::System();
  const int64_t deadline_ns = clock.NowNs() + budget_ms * 1'000'000;
  const auto left_ms = [&] {
    return std::max<int64_t>(0, (deadline_ns - clock.NowNs()) / 1'000'000);
  };
  server.BeginExit();  // those that wait for a load that runs end at once
  if (fronts.shadow) fronts.shadow->Stop(milliseconds(left_ms()));  // it asks those below
  if (fronts.http) fronts.http->Stop(milliseconds(left_ms()));
  if (fronts.grpc) fronts.grpc->Stop(left_ms());
  if (fronts.admin_port) fronts.admin_port->Stop(milliseconds(left_ms()));
  if (fronts.admin_socket) fronts.admin_socket->Stop(milliseconds(left_ms()));
  if (fronts.sagemaker) fronts.sagemaker->Stop(milliseconds(left_ms()));
  if (fronts.vertex_ai) fronts.vertex_ai->Stop(milliseconds(left_ms()));
  if (fronts.cog) fronts.cog->Stop(milliseconds(left_ms()));
  if (fronts.openai) fronts.openai->Stop(milliseconds(left_ms()));
  server.Shutdown(left_ms());
  if (fronts.cog) fronts.cog->DrainWebhooks(milliseconds(left_ms()));
  if (fronts.metrics) fronts.metrics->Stop(milliseconds(0));
  return clock.NowNs() <= deadline_ns;
}

}  // namespace inflight::tool
