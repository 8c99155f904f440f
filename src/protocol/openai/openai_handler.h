// SPDX-License-Identifier: Apache-2.0
// The front end that speaks OpenAI's API (docs/reference/protocol/openai.md): on a port of its own,
// and beside KServe's paths on the HTTP port.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "protocol/http_listener/listening_server.h"
#include "protocol/http_listener/path_handler.h"
#include "protocol/http_listener/router.h"
#include "protocol/kserve/access/api.h"
#include "protocol/kserve/http/access.h"
#include "protocol/openai/endpoints.h"
#include "protocol/openai/served_models.h"
#include "serving/server/server.h"

namespace inflight::openai {

struct OpenAiOptions {
  kserve_http::Access access;
  size_t max_input_bytes = 64 << 20;  // of a body; --http-max-input-size
  std::vector<ModelAlias> aliases;
  MessageFormats formats = {};  // that CheckFormats takes
};

// docs/reference/protocol/openai.md lists the rows.
struct Route {
  std::string_view path;  // a template (router.h)
  http_listener::Methods methods;
  kserve::Api api;  // by which the policy of access knows it
  Endpoint* handle;
};
std::span<const Route> Routes();

// `server` must outlive it.
std::unique_ptr<http_listener::PathHandler> MakeHandler(serving::Server& server,
                                                        OpenAiOptions options);

class OpenAiServer : public http_listener::ListeningServer {
 public:
  // As kserve_http::HttpServer::Start.
  static Result<std::unique_ptr<OpenAiServer>> Start(serving::Server& server,
                                                     const http_listener::ListenerOptions& listener,
                                                     OpenAiOptions options);

 private:
  using ListeningServer::ListeningServer;
};

}  // namespace inflight::openai
