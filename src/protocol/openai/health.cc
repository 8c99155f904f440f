// SPDX-License-Identifier: Apache-2.0
// GET /health and /version.
#include "inflight/version.h"
#include "protocol/kserve/http/response.h"
#include "protocol/openai/endpoints.h"
#include "protocol/openai/error.h"

namespace inflight::openai {

using http_listener::HttpRequest;
using http_listener::HttpResponder;

// NOLINTBEGIN(performance-unnecessary-value-param): endpoints have one signature
void HandleHealth(const Context& context, const std::string&, const HttpRequest&,
                  std::shared_ptr<HttpResponder> responder) {
  if (context.server.live() && context.server.ready())
    return responder->Send(kserve_http::Answer(200, kserve_http::kJson));
  responder->Send(Error(Unavailable("the server is not ready")));
}

void HandleVersion(const Context&, const std::string&, const HttpRequest&,
                   std::shared_ptr<HttpResponder> responder) {
  responder->Send(kserve_http::Answer(200, kserve_http::kJson,
                                      std::string(R"({"version":")") + kVersion + "\"}"));
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace inflight::openai
