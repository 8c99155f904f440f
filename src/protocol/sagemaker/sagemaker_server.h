// SPDX-License-Identifier: Apache-2.0
// The front end for SageMaker (docs/reference/protocol/sagemaker.md): health, requests of one
// default model, and models that the platform loads, calls and unloads by names of its own.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "protocol/http_listener/listening_server.h"
#include "protocol/kserve/http/endpoint_handler.h"
#include "serving/server/server.h"

namespace inflight::sagemaker {

struct SageMakerOptions {
  http_listener::ListenerOptions listener{.name = "Sagemaker", .port = 8080};
  // Its framing is the platform's, and nothing is compressed, whatever it says.
  kserve_http::EndpointOptions endpoints;
  // As the environment has them; empty where it has not.
  std::string ping_mode;       // SAGEMAKER_TRITON_PING_MODE: ready (default), live
  std::string inference_type;  // SAGEMAKER_TRITON_INFERENCE_TYPE: infer (default), generate, ...
  std::string default_model;   // SAGEMAKER_TRITON_DEFAULT_MODEL_NAME; empty: the only ready one
  std::chrono::milliseconds unload_timeout{350'000};
};

// The handler alone, of whoever has connections of their own. Errors as of Start.
Result<std::unique_ptr<http_listener::HttpHandler>> MakeHandler(serving::Server& server,
                                                                SageMakerOptions options);

class SageMakerServer : public http_listener::ListeningServer {
 public:
  // As kserve_http::HttpServer::Start. kInvalidArgument names a variable whose value is unknown.
  static Result<std::unique_ptr<SageMakerServer>> Start(serving::Server& server,
                                                        SageMakerOptions options);

 private:
  using ListeningServer::ListeningServer;
};

}  // namespace inflight::sagemaker
