// SPDX-License-Identifier: Apache-2.0
// The front end that speaks OpenAI's API (docs/reference/protocol/openai.md): on a port of its own,
// and beside KServe's paths on the HTTP port.
#pragma once

#include <cstddef>
#include <cstdint>
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
#include "protocol/openai/error.h"
#include "protocol/openai/served_models.h"
#include "serving/server/server.h"

namespace inflight::openai {

// What an endpoint does before it returns, by which it has a thread of its own or none.
enum class Work : uint8_t {
  kReadBody,    // reads its body, which may be large
  kTokenize,    // tokenizes all of it, which is charged to the request
  kDetokenize,  // the reverse, and charges that itself
  kLookAtDir,   // looks at a folder of the server: a disk may keep it waiting
  kReadKept,    // reads its body, and a kept answer that this or the path names: another body
};

// docs/reference/protocol/openai.md lists the rows, and anthropic.md those of that API.
struct Route {
  std::string_view path;  // a template (router.h)
  http_listener::Methods methods;
  kserve::Api api;  // by which the policy of access knows it
  Endpoint* handle;
  Work work = Work::kReadBody;
  // In the form of its API: `status`, to be answered with this status of HTTP.
  http_listener::HttpResponse (*error)(const Status& status, int http_status) = ErrorWith;
};
std::span<const Route> Routes();

struct OpenAiOptions {
  kserve_http::Access access;
  size_t max_input_bytes = 64 << 20;  // of a body; --http-max-input-size
  std::vector<ModelAlias> aliases;
  MessageFormats formats = {};                    // that CheckFormats takes
  std::shared_ptr<ResponseStore> responses = {};  // of all ports; null: none are kept
  std::span<const Route> more_routes = {};  // of other APIs that are answered by the same pipeline
};

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
