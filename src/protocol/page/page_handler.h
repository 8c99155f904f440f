// SPDX-License-Identifier: Apache-2.0
// A page for browsers, beside the APIs of the HTTP port (docs/page.md): a chat, the models, metrics
// and a description of the routes. The page itself holds nothing that a key guards: what it shows
// it asks for by the same routes as every client.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "protocol/http_listener/path_handler.h"
#include "protocol/http_listener/router.h"
#include "protocol/kserve/http/access.h"

namespace inflight::page {

struct PageOptions {
  kserve_http::Access access;
  // What GET /page/metrics answers to who may read metrics; null: there is no such path.
  std::function<std::string(bool with_reuse)> metrics_page;
};

// docs/page.md lists the rows.
struct Route {
  std::string_view path;  // a template (router.h)
  http_listener::Methods methods;
  std::string_view file;  // that it answers with; empty: {file}, or no file
};
std::span<const Route> Routes();

// "/" is served to who asks for text/html; other clients get there what they always got.
std::unique_ptr<http_listener::PathHandler> MakeHandler(PageOptions options);

}  // namespace inflight::page
