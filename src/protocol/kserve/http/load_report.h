// SPDX-License-Identifier: Apache-2.0
// ORCA load reports of generate's answers (docs/reference/protocol/http.md): how full the KV caches
// of the server are, for balancers that send a request where there is room.
#pragma once

#include <optional>

#include "protocol/http_listener/http_message.h"
#include "serving/server/server.h"

namespace inflight::kserve_http {

enum class LoadReport : uint8_t { kText, kJson };

// What the request asks for with endpoint-load-metrics-format; logs an error for other formats.
std::optional<LoadReport> AskedLoadReport(const http_listener::HttpRequest& request);

// endpoint-load-metrics, over all executors as of now. Adds nothing where none has a KV cache.
void AddLoadReport(const serving::Server& server, LoadReport report,
                   http_listener::Headers& headers);

}  // namespace inflight::kserve_http
