// SPDX-License-Identifier: Apache-2.0
// The front ends over HTTP: options in, a listener that serves out. The --http-* limits hold for
// each of them.
#pragma once

#include <memory>

#include "protocol/cog/cog_server.h"
#include "protocol/kserve/http/http_server.h"
#include "protocol/metrics/metrics_server.h"
#include "protocol/openai/openai_handler.h"
#include "protocol/sagemaker/sagemaker_server.h"
#include "protocol/vertex_ai/vertex_ai_server.h"
#include "serve_options.h"
#include "serving/server/server.h"

namespace inflight::tool {

Result<std::unique_ptr<metrics::MetricsServer>> StartMetrics(serving::Server& server,
                                                             const ServeOptions& options);

// `metrics` may be null; else it must outlive the server.
Result<std::unique_ptr<kserve_http::HttpServer>> StartHttp(serving::Server& server,
                                                           const ServeOptions& options,
                                                           const metrics::MetricsServer* metrics);

// The places of administration that the options name (docs/reference/access.md, "Administration").
Result<std::unique_ptr<kserve_http::HttpServer>> StartAdminPort(serving::Server& server,
                                                                const ServeOptions& options);
Result<std::unique_ptr<kserve_http::HttpServer>> StartAdminSocket(serving::Server& server,
                                                                  const ServeOptions& options);

// As the environment says. kInvalidArgument also for a port outside the safe range.
Result<std::unique_ptr<sagemaker::SageMakerServer>> StartSageMaker(serving::Server& server,
                                                                   const ServeOptions& options);

// With the routes that the environment names. `metrics` may be null; else it must outlive the
// server.
Result<std::unique_ptr<vertex_ai::VertexAiServer>> StartVertexAi(
    serving::Server& server, const ServeOptions& options, const metrics::MetricsServer* metrics);

// At --cog-port, which is given; with what the environment says.
Result<std::unique_ptr<cog::CogServer>> StartCog(serving::Server& server,
                                                 const ServeOptions& options);

// On a port of its own, --openai-port.
Result<std::unique_ptr<openai::OpenAiServer>> StartOpenAi(serving::Server& server,
                                                          const ServeOptions& options);

}  // namespace inflight::tool
