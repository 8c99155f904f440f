// SPDX-License-Identifier: Apache-2.0
#include "shadow/recorded_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/letter_case.h"
#include "base/status_macros.h"

namespace inflight::shadow {
namespace {

using nlohmann::json;

// Its writer refuses other bytes.
bool IsUtf8(const std::string& text) {
  try {
    return !json(text).dump().empty();
  } catch (const json::type_error&) {
    return false;
  }
}

Result<std::string> TextMember(const json& object, const char* name, const char* otherwise) {
  if (!object.contains(name)) return std::string(otherwise);
  if (!object[name].is_string())
    return InvalidArgument(name,
                           "got " + std::string(object[name].type_name()) + ", a text is needed");
  return object[name].get<std::string>();
}

// A body that is written as JSON is sent as that JSON.
Result<std::string> BodyOf(const json& object) {
  if (object.contains("body") && object.contains("body_base64"))
    return InvalidArgument("body and body_base64: a request has one of them");
  if (object.contains("body") && !object["body"].is_string()) return object["body"].dump();
  ASSIGN_OR_RETURN(const std::string encoded, TextMember(object, "body_base64", ""));
  if (!object.contains("body_base64")) return TextMember(object, "body", "");
  auto decoded = DecodeBase64(encoded);
  if (!decoded) return InvalidArgument("body_base64", "it is no base64");
  return *std::move(decoded);
}

}  // namespace

bool IsHopByHop(std::string_view header) {
  static constexpr std::string_view kNames[] = {"Connection",
                                                "Keep-Alive",
                                                "Transfer-Encoding",
                                                "TE",
                                                "Trailer",
                                                "Upgrade",
                                                "Host",
                                                "Expect",
                                                "Content-Length",
                                                "Accept-Encoding",
                                                "Proxy-Connection"};
  return std::ranges::any_of(kNames, [&](auto name) { return EqualInAnyCase(header, name); });
}

Result<RecordedRequest> ParseRecordedRequest(const std::string& line) {
  static constexpr std::string_view kMembers[] = {"method", "path", "headers", "body",
                                                  "body_base64"};
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return InvalidArgument("it is no JSON object");
  for (const auto& [name, value] : object.items()) {
    if (std::ranges::find(kMembers, name) == std::end(kMembers))
      return InvalidArgument(name,
                             "it is not known; known are method, path, headers, body and "
                             "body_base64");
  }
  RecordedRequest request;
  ASSIGN_OR_RETURN(request.body, BodyOf(object));
  const bool has_body = object.contains("body") || object.contains("body_base64");
  ASSIGN_OR_RETURN(request.method, TextMember(object, "method", has_body ? "POST" : "GET"));
  ASSIGN_OR_RETURN(request.path, TextMember(object, "path", ""));
  const auto is_unfit = [](char c) { return c >= 0 && c <= ' '; };
  if (!request.path.starts_with('/') || std::ranges::any_of(request.path, is_unfit))
    return InvalidArgument("path",
                           "got '" + request.path + "', it begins with / and has no blanks");
  if (request.method.empty() ||
      !std::ranges::all_of(request.method, [](char c) { return c >= 'A' && c <= 'Z'; }))
    return InvalidArgument("method",
                           "got '" + request.method + "', such as GET and POST are known");
  const json headers = object.value("headers", json::object());
  if (!headers.is_object()) return InvalidArgument("headers", "an object of texts is needed");
  for (const auto& [name, value] : headers.items()) {
    if (!value.is_string() || name.empty())
      return InvalidArgument("headers." + name, "a text is needed");
    const auto text = value.get<std::string>();
    if (std::ranges::any_of(name + text,
                            [](char c) { return c == '\r' || c == '\n' || c == '\0'; }))
      return InvalidArgument("headers." + name, "it has a line's end");
    if (!IsHopByHop(name)) request.headers.emplace_back(name, text);
  }
  return request;
}

std::string WriteRecordedRequest(const RecordedRequest& request) {
  json object = {{"method", request.method}, {"path", request.path}};
  for (const auto& [name, value] : request.headers)
    if (IsUtf8(value)) object["headers"][name] = value;
  if (!request.body.empty()) {
    if (IsUtf8(request.body)) {
      object["body"] = request.body;
    } else {
      object["body_base64"] = EncodeBase64(request.body);
    }
  }
  return object.dump();
}

}  // namespace inflight::shadow
