// SPDX-License-Identifier: Apache-2.0
#include "object_store/http_message.h"

#include <cstdint>

#include "base/percent_encoding.h"

namespace inflight::object_store {
std::string EncodeQuery(const Pairs& query) {
  std::string encoded;
  for (const auto& [name, value] : query) {
    if (!encoded.empty()) encoded += '&';
    encoded += PercentEncode(name) + "=" + PercentEncode(value);
  }
  return encoded;
}

HttpRequest RequestTo(const std::string& url) {
  HttpRequest request;
  const size_t slashes = url.find("://");
  const size_t slash =
      slashes == std::string::npos ? std::string::npos : url.find('/', slashes + 3);
  request.origin = url.substr(0, slash);
  request.path = slash == std::string::npos ? "/" : url.substr(slash);
  return request;
}

std::string UrlOf(const HttpRequest& request) {
  std::string url = request.origin + request.path;
  if (!request.query.empty()) url += "?" + EncodeQuery(request.query);
  return url;
}

std::string_view HostOf(std::string_view origin) {
  const size_t slashes = origin.find("//");
  return slashes == std::string_view::npos ? origin : origin.substr(slashes + 2);
}

}  // namespace inflight::object_store
