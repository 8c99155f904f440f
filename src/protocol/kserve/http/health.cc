// SPDX-License-Identifier: Apache-2.0
// Liveness and readiness (docs/reference/protocol/http.md, "Health and metadata").
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {

http_listener::HttpResponse HandleLive(const Context& context, const Route&,
                                       const http_listener::HttpRequest&) {
  return Answer(context.server.live() ? 200 : 400, kText);
}

http_listener::HttpResponse HandleReady(const Context& context, const Route&,
                                        const http_listener::HttpRequest&) {
  if (context.server.exiting()) return Error(Unavailable("Server exiting"));
  return Answer(context.server.ready() ? 200 : 400, kText);
}

http_listener::HttpResponse HandleModelReady(const Context& context, const Route& route,
                                             const http_listener::HttpRequest&) {
  const auto model = context.server.FindModel(route.model, route.version);
  if (!model.ok()) return Error(model.status(), kText);
  if (!(*model)->ready()) {
    const std::string_view why = (*model)->why_not_ready();
    const std::string text = "Model version not ready";
    return Error(InvalidArgument(why.empty() ? text : text + ": " + std::string(why)), kText);
  }
  return Answer(200, kText);
}

}  // namespace inflight::kserve_http
