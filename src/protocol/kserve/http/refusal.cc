// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/refusal.h"

#include <string>
#include <string_view>

#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {

using http_listener::HttpRequest;
using http_listener::HttpResponse;

std::string_view AuthorizationOf(const HttpRequest& request) {
  const std::string* authorization = request.FindHeader("Authorization");
  return authorization != nullptr ? *authorization : std::string_view();
}

std::optional<HttpResponse> RefusalOf(const kserve::Admission& admission) {
  if (admission.ok()) return std::nullopt;
  HttpResponse response = Error(admission.status);
  if (admission.status.code() == StatusCode::kUnauthenticated) {
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  } else if (admission.status.code() == StatusCode::kResourceExhausted) {
    response.headers.emplace_back("Retry-After", std::to_string(admission.retry_after_s));
  }
  return response;
}

}  // namespace inflight::kserve_http
