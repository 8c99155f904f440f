// SPDX-License-Identifier: Apache-2.0
// X-Vertex-Ai-Triton-Redirect: the path of another endpoint, without its leading slash
// (docs/reference/protocol/vertex-ai.md).
#pragma once

#include <optional>
#include <string_view>

#include "protocol/kserve/http/endpoint_table.h"

namespace inflight::vertex_ai {

inline constexpr char kRedirectHeader[] = "X-Vertex-Ai-Triton-Redirect";
inline constexpr std::string_view kMetrics = "metrics";  // no endpoint of KServe

// None for paths that are unknown or may not be redirected to.
std::optional<kserve_http::Route> FindRedirect(std::string_view path);

}  // namespace inflight::vertex_ai
