// SPDX-License-Identifier: Apache-2.0
#include "object_store/signing.h"

#include <fmt/format.h>
#include <time.h>  // NOLINT: timegm, gmtime_r and strptime are of POSIX

#include <algorithm>
#include <map>

#include "base/base64.h"
#include "base/hex.h"
#include "base/percent_encoding.h"
#include "object_store/digest.h"

namespace inflight::object_store {
namespace {

constexpr char kAzureVersion[] = "2021-12-02";

// `format` of gmtime; C's names of days and months, whatever the locale.
std::string FormatUtc(std::time_t time, const char* format) {
  tm parts{};
  gmtime_r(&time, &parts);
  char text[64] = {};
  return std::string(text, strftime(text, sizeof text, format, &parts));
}

std::map<std::string, std::string> SortedHeaders(const HttpRequest& request) {
  std::map<std::string, std::string> sorted(request.headers.begin(), request.headers.end());
  sorted["host"] = HostOf(request.origin);
  return sorted;
}

std::string SignedNames(const HttpRequest& request) {
  std::string names;
  for (const auto& [name, value] : SortedHeaders(request)) {
    if (!names.empty()) names += ';';
    names += name;
  }
  return names;
}

std::string SortedQuery(const HttpRequest& request) {
  Pairs encoded;
  for (const auto& [name, value] : request.query)
    encoded.emplace_back(PercentEncode(name), PercentEncode(value));
  std::ranges::sort(encoded);
  std::string text;
  for (const auto& [name, value] : encoded) {
    if (!text.empty()) text += '&';
    text.append(name).append("=").append(value);
  }
  return text;
}

std::string HeaderOf(const HttpRequest& request, std::string_view name) {
  for (const auto& [known, value] : request.headers)
    if (known == name) return value;
  return {};
}

// Parameters by their names in small letters, values decoded: a line each.
std::string AzureResource(const AzureKey& key, const HttpRequest& request) {
  std::string text = "/" + key.account + request.path;
  std::map<std::string, std::string> sorted(request.query.begin(), request.query.end());
  for (const auto& [name, value] : sorted) text.append("\n").append(name).append(":").append(value);
  return text;
}

}  // namespace

std::string HttpDate(std::time_t time) {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  tm parts{};
  gmtime_r(&time, &parts);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[parts.tm_wday], parts.tm_mday,
                     kMonths[parts.tm_mon], 1900 + parts.tm_year, parts.tm_hour, parts.tm_min,
                     parts.tm_sec);
}

std::time_t ParseTime(const std::string& text) {
  tm parts{};
  return strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr ? 0 : timegm(&parts);
}

std::string CanonicalAwsRequest(const HttpRequest& request) {
  std::string text = request.method + "\n" + request.path + "\n" + SortedQuery(request) + "\n";
  for (const auto& [name, value] : SortedHeaders(request))
    text.append(name).append(":").append(value).append("\n");
  return text + "\n" + SignedNames(request) + "\n" + HeaderOf(request, "x-amz-content-sha256");
}

void SignAws(const AwsKeys& keys, const AwsScope& scope, std::time_t now, HttpRequest& request) {
  const std::string time = FormatUtc(now, "%Y%m%dT%H%M%SZ");
  const std::string day = time.substr(0, 8);
  request.headers.emplace_back("x-amz-date", time);
  request.headers.emplace_back("x-amz-content-sha256", ToHex(Sha256(request.body)));
  if (!keys.session_token.empty())
    request.headers.emplace_back("x-amz-security-token", keys.session_token);
  const std::string where = fmt::format("{}/{}/{}/aws4_request", day, scope.region, scope.service);
  const std::string to_sign = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, where,
                                          ToHex(Sha256(CanonicalAwsRequest(request))));
  std::string key = "AWS4" + keys.secret;
  for (const std::string& part : {day, scope.region, scope.service, std::string("aws4_request")})
    key = HmacSha256(key, part);
  request.headers.emplace_back(
      "authorization",
      fmt::format("AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={},Signature={}", keys.key_id,
                  where, SignedNames(request), ToHex(HmacSha256(key, to_sign))));
}

void AddAzureHeaders(std::time_t now, HttpRequest& request) {
  request.headers.emplace_back("x-ms-date", HttpDate(now));
  request.headers.emplace_back("x-ms-version", kAzureVersion);
}

void SignAzure(const AzureKey& key, std::time_t now, HttpRequest& request) {
  AddAzureHeaders(now, request);
  std::string text = request.method + "\n\n\n";  // encoding, language
  text += (request.body.empty() ? "" : std::to_string(request.body.size())) + "\n\n\n\n\n";
  text += HeaderOf(request, "if-match") + "\n\n\n\n";  // ranges are x-ms-range
  std::map<std::string, std::string> sorted(request.headers.begin(), request.headers.end());
  for (const auto& [name, value] : sorted)
    if (name.starts_with("x-ms-")) text.append(name).append(":").append(value).append("\n");
  text += AzureResource(key, request);
  request.headers.emplace_back(
      "authorization",
      fmt::format("SharedKey {}:{}", key.account, EncodeBase64(HmacSha256(key.key, text))));
}

}  // namespace inflight::object_store
