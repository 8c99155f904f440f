// SPDX-License-Identifier: Apache-2.0
// The endpoints of KServe v2 with Triton's extensions: a row says all that is decided before the
// endpoint's own function runs. docs/reference/protocol/http.md lists the same rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "protocol/http_listener/router.h"
#include "protocol/kserve/access/api.h"
#include "protocol/kserve/http/endpoints.h"

namespace inflight::kserve_http {

// A set of these.
using Traits = uint8_t;
inline constexpr Traits kWaits = 1;          // for models to load: runs on a thread of its own
inline constexpr Traits kTakesBinary = 2;    // its body may bring binary tensors behind the JSON
inline constexpr Traits kText405 = 4;        // Triton labels its 405 text/plain, others' JSON
inline constexpr Traits kNotOnVertexAi = 8;  // Vertex AI's route does not redirect to it

struct Endpoint {
  std::string_view path;  // a template (router.h)
  http_listener::Methods methods;
  kserve::Api api;  // by which the policy of access knows it
  std::variant<Reply*, Start*> handle;
  Traits traits = 0;

  bool Has(Traits trait) const { return (traits & trait) != 0; }
};

std::span<const Endpoint> Endpoints();

// The row of this template, which exists.
const Endpoint& EndpointAt(std::string_view path);

struct FoundRoute {
  Route route;
  bool allows_method;
};
std::optional<FoundRoute> FindRoute(std::string_view method, std::string_view path);

// The row alone, whatever its path names; null where there is none.
const Endpoint* FindEndpoint(std::string_view method, std::string_view path);

}  // namespace inflight::kserve_http
