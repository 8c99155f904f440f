// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/refusal.h"

#include <string>
#include <string_view>

#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {

using http_listener::HttpRequest;
using http_listener::HttpResponse;

std::optional<HttpResponse> RefuseByKey(kserve::AccessPolicy& policy, kserve::Role role,
                                        const HttpRequest& request, bool is_whole) {
  const std::string* authorization = request.FindHeader("Authorization");
  const std::string_view key = authorization != nullptr ? *authorization : std::string_view();
  const kserve::Admission admission = is_whole ? policy.Admit(key, role) : policy.Check(key, role);
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
