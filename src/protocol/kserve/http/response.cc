// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/response.h"

#include <utility>

#include "json/json_writer.h"

namespace inflight::kserve_http {

int HttpStatus(const Status& status) {
  if (status.reason() == Reason::kOverLimit) return 429;
  switch (status.code()) {
    case StatusCode::kOk:
      return 200;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kUnimplemented:
      return 501;
    case StatusCode::kInternal:
    case StatusCode::kDataLoss:
      return 500;
    case StatusCode::kUnavailable:
    case StatusCode::kResourceExhausted:  // a full queue: try again later
    case StatusCode::kDeadlineExceeded:   // time-out while queued
      return 503;
    case StatusCode::kUnauthenticated:
      return 401;
    case StatusCode::kPermissionDenied:
      return 403;
    case StatusCode::kCancelled:
    case StatusCode::kUnknown:
    case StatusCode::kInvalidArgument:
    case StatusCode::kAlreadyExists:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kAborted:
    case StatusCode::kOutOfRange:
      return 400;
  }
  return 500;
}

http_listener::HttpResponse Answer(int status, std::string_view content_type, std::string body) {
  return {.status = status,
          .headers = {{"Content-Type", std::string(content_type)}},
          .body = std::move(body)};
}

http_listener::HttpResponse Error(const Status& status, std::string_view content_type) {
  auto response = Answer(HttpStatus(status), content_type, json::ErrorBody(status.message()));
  SetReason(status, response);
  return response;
}

void AddRetryAfter(const Status& status, http_listener::Headers& headers) {
  const int64_t seconds = status.reason() == Reason::kLoading ? 1 : status.retry_after_s();
  if (seconds > 0) headers.emplace_back("Retry-After", std::to_string(seconds));
}

void SetReason(const Status& status, http_listener::HttpResponse& response) {
  response.reason = status.reason();
  AddRetryAfter(status, response.headers);
}

http_listener::HttpResponse MethodNotAllowed(std::string_view content_type) {
  return Answer(405, content_type, json::ErrorBody("Method Not Allowed"));
}

http_listener::HttpResponse Done(const Status& status) {
  return status.ok() ? Answer(200, kJson) : Error(status);
}

}  // namespace inflight::kserve_http
