// SPDX-License-Identifier: Apache-2.0
// Answers over HTTP to requests that the access policy refuses (docs/reference/access.md).
#pragma once

#include <optional>
#include <string_view>

#include "protocol/http_listener/http_message.h"
#include "protocol/kserve/access/access_policy.h"

namespace inflight::kserve_http {

// "" where it names none.
std::string_view AuthorizationOf(const http_listener::HttpRequest& request);

// None where the request may do what it asks for.
std::optional<http_listener::HttpResponse> RefusalOf(const kserve::Admission& admission);

}  // namespace inflight::kserve_http
