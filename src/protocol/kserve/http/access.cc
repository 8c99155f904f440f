// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/access.h"

#include <string>

#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {

using http_listener::HttpRequest;
using http_listener::HttpResponse;

kserve::Admission Look(const Access& access, kserve::Api api, const HttpRequest& request,
                       bool is_whole) {
  if (Status status = access.web_pages.Check(request, api); !status.ok())
    return {.status = std::move(status)};
  return access.policy->Admit(
      {.entrance = access.entrance, .headers = request.headers, .is_whole = is_whole}, api);
}

namespace {

std::optional<HttpResponse> RefusalOf(const kserve::Admission& admission) {
  if (admission.ok()) return std::nullopt;
  HttpResponse response = Error(admission.status, admission.lacks_header ? kText : kJson);
  if (admission.status.code() == StatusCode::kUnauthenticated)
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace

std::optional<HttpResponse> Admit(const Access& access, kserve::Api api, HttpRequest& request) {
  kserve::Admission admission = Look(access, api, request, /*is_whole=*/true);
  auto refusal = RefusalOf(admission);
  request.caller = std::move(admission.client);
  return refusal;
}

bool SeesReuse(const Access& access, const HttpRequest& request) {
  return access.policy->SeesReuse({.entrance = access.entrance, .headers = request.headers});
}

std::optional<HttpResponse> RefusalOfHead(const Access& access, kserve::Api api,
                                          const HttpRequest& head) {
  return RefusalOf(Look(access, api, head, /*is_whole=*/false));
}

}  // namespace inflight::kserve_http
