// SPDX-License-Identifier: Apache-2.0
// Answers over HTTP to requests that the access policy refuses (docs/reference/access.md).
#pragma once

#include <optional>

#include "protocol/http_listener/http_message.h"
#include "protocol/kserve/access/access_policy.h"

namespace inflight::kserve_http {

// None where the request may do what the role says. Of one that is not whole, the head alone is
// there, and it counts for no rate.
std::optional<http_listener::HttpResponse> RefuseByKey(kserve::AccessPolicy& policy,
                                                       kserve::Role role,
                                                       const http_listener::HttpRequest& request,
                                                       bool is_whole);

}  // namespace inflight::kserve_http
