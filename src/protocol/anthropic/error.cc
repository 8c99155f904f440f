// SPDX-License-Identifier: Apache-2.0
#include "protocol/anthropic/error.h"

#include <string_view>
#include <utility>

#include "json/json_writer.h"
#include "json/valid_text.h"
#include "protocol/kserve/http/response.h"
#include "protocol/openai/error.h"

namespace inflight::anthropic {
namespace {

constexpr int kOverloaded = 529;
constexpr int kTimedOut = 504;

int HttpStatusOf(const Status& status, int openai_status) {
  switch (openai_status) {
    case 422:
      return 400;
    case 503:
      return status.code() == StatusCode::kDeadlineExceeded ? kTimedOut : kOverloaded;
    default:
      return openai_status;
  }
}

std::string_view TypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case kTimedOut:
      return "timeout_error";
    case kOverloaded:
      return "overloaded_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

void Append(const Status& status, int http_status, std::string& out) {
  json::Writer writer(out);
  writer.BeginObject().Key("type").String("error").Key("error").BeginObject();
  writer.Key("type").String(TypeOf(http_status));
  writer.Key("message").String(json::ValidText(status.message())).EndObject().EndObject();
}

}  // namespace

http_listener::HttpResponse Error(const Status& status, int http_status) {
  const int own_status = HttpStatusOf(status, http_status);
  std::string body;
  Append(status, own_status, body);
  auto response = kserve_http::Answer(own_status, kserve_http::kJson, std::move(body));
  kserve_http::SetReason(status, response);
  return response;
}

http_listener::HttpResponse Error(const Status& status) {
  return Error(status, openai::HttpStatusOf(status));
}

void AppendError(const Status& status, std::string& out) {
  Append(status, HttpStatusOf(status, openai::HttpStatusOf(status)), out);
}

}  // namespace inflight::anthropic
