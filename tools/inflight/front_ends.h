// SPDX-License-Identifier: Apache-2.0
// All ports of `inflight serve`, from their opening to their end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "grpc_front_end.h"
#include "http_front_ends.h"
#include "inflight/status.h"
#include "serve_options.h"
#include "serving/server/server.h"
#include "shadow_of.h"

namespace inflight::tool {

struct FrontEnds {
  std::unique_ptr<metrics::MetricsServer> metrics;  // the last to end: others show what it shows
  std::unique_ptr<kserve_http::HttpServer> http;
  std::unique_ptr<kserve_http::HttpServer> admin_port;
  std::unique_ptr<kserve_http::HttpServer> admin_socket;
  std::unique_ptr<kserve_grpc::GrpcServer> grpc;
  std::unique_ptr<sagemaker::SageMakerServer> sagemaker;
  std::unique_ptr<vertex_ai::VertexAiServer> vertex_ai;
  std::unique_ptr<cog::CogServer> cog;
  std::unique_ptr<openai::OpenAiServer> openai;
  std::unique_ptr<ShadowOf> shadow;
};

int PortOf(const auto& front) { return front ? front->port() : 0; }  // 0: there is none

// Opens the ports that answer before the models are there: a port that is in use ends the start
// before anything is loaded.
Result<FrontEnds> OpenPorts(serving::Server& server, const ServeOptions& options);
// And those that ask which models there are, or pass requests to the others.
Status OpenPortsOfModels(serving::Server& server, const ServeOptions& options, FrontEnds& fronts);

// Says that each has started. Triton's clients and tests wait for these lines
// (docs/operations.md, "The log").
void LogStarted(const ServeOptions& options, const FrontEnds& fronts);

// For callers that asked for any free ports. An empty path: for nobody.
Status WritePortFile(const std::string& path, const FrontEnds& fronts);

// Front ends and executors share one budget of time. Returns false when it ran out.
bool Drain(FrontEnds& fronts, serving::Server& server, int64_t budget_ms);

}  // namespace inflight::tool
