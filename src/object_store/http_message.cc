// SPDX-License-Identifier: Apache-2.0
#include "object_store/http_message.h"

#include <cstdint>

namespace inflight::object_store {
namespace {

bool IsUnreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == '~';
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string PercentEncode(std::string_view text, std::string_view kept) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    if (IsUnreserved(c) || kept.find(c) != std::string_view::npos) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<uint8_t>(c);
    encoded += '%';
    encoded += kDigits[byte >> 4];
    encoded += kDigits[byte & 15];
  }
  return encoded;
}

std::string PercentDecode(std::string_view text, bool plus_is_blank) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? HexValue(text[i + 1]) : -1;
    const int low = high >= 0 ? HexValue(text[i + 2]) : -1;
    if (low >= 0) {
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      decoded += plus_is_blank && text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

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
