// SPDX-License-Identifier: Apache-2.0
#include "protocol/vertex_ai/redirect.h"

#include <string>
#include <utility>

namespace inflight::vertex_ai {

std::optional<kserve_http::Route> FindRedirect(std::string_view path) {
  // Whatever the endpoint's methods: the platform only posts.
  auto found = kserve_http::FindRoute(/*method=*/{}, "/" + std::string(path));
  if (!found || found->route.endpoint->Has(kserve_http::kNotOnVertexAi)) return std::nullopt;
  return std::move(found->route);
}

}  // namespace inflight::vertex_ai
