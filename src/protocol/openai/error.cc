// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/error.h"

#include <string_view>
#include <utility>

#include "json/json_writer.h"
#include "json/valid_text.h"
#include "protocol/kserve/http/response.h"

namespace inflight::openai {
namespace {

constexpr int kUnprocessable = 422;

std::string_view TypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "server_error";
  }
}

// Empty: null.
std::string_view CodeOf(const Status& status, int http_status) {
  if (status.reason() == Reason::kPromptTooLong) return "context_length_exceeded";
  if (status.code() == StatusCode::kUnimplemented) return "unsupported_parameter";
  switch (http_status) {
    case 401:
      return "invalid_api_key";
    case 404:
      return status.field() == "model" ? "model_not_found" : "";
    case 413:
      return "content_too_large";
    case 429:
      return "rate_limit_exceeded";
    case 503:
      return "overloaded";
    default:
      return "";
  }
}

void Append(const Status& status, int http_status, std::string& out) {
  const std::string_view code = CodeOf(status, http_status);
  json::Writer writer(out);
  writer.BeginObject().Key("error").BeginObject();
  writer.Key("message").String(json::ValidText(status.message()));
  writer.Key("type").String(TypeOf(http_status)).Key("param");
  status.field().empty() ? writer.Null() : writer.String(json::ValidText(status.field()));
  writer.Key("code");
  code.empty() ? writer.Null() : writer.String(code);
  writer.EndObject().EndObject();
}

}  // namespace

int HttpStatusOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnimplemented:  // refused by name
      return 400;
    case StatusCode::kFailedPrecondition:  // a conversation that the model's template refuses
      return kUnprocessable;
    default:
      return kserve_http::HttpStatus(status);
  }
}

void AppendError(const Status& status, std::string& out) {
  Append(status, HttpStatusOf(status), out);
}

http_listener::HttpResponse ErrorWith(const Status& status, int http_status) {
  std::string body;
  Append(status, http_status, body);
  auto response = kserve_http::Answer(http_status, kserve_http::kJson, std::move(body));
  kserve_http::SetReason(status, response);
  return response;
}

http_listener::HttpResponse Error(const Status& status) {
  return ErrorWith(status, HttpStatusOf(status));
}

http_listener::HttpResponse ErrorOf(int http_status, std::string message) {
  return ErrorWith(InvalidArgument(std::move(message)), http_status);
}

}  // namespace inflight::openai
