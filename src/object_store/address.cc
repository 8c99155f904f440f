// SPDX-License-Identifier: Apache-2.0
#include "object_store/address.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/control_bytes.h"
#include "base/status_macros.h"

namespace inflight::object_store {
namespace {

struct Scheme {
  Kind kind;
  std::string_view scheme;
  std::string_view service;
  std::string_view form;
};
constexpr std::array kSchemes = {
    Scheme{Kind::kS3, "s3://", "S3",
           "s3://bucket/path, s3://host:port/bucket/path or s3://https://host:port/bucket/path"},
    Scheme{Kind::kGs, "gs://", "GCS", "gs://bucket/path"},
    Scheme{Kind::kAs, "as://", "AS", "as://account/container/path"}};

const Scheme& FindScheme(Kind kind) { return *std::ranges::find(kSchemes, kind, &Scheme::kind); }

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == '$';  // $web, $root
}

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= 222 && std::ranges::all_of(text, IsNameChar) &&
         text != "." && text != "..";
}

// "host:8080", "[::1]:8080"; `needs_port` where nothing else tells a host from a bucket.
bool IsHost(std::string_view text, bool needs_port) {
  std::string_view host = text;
  std::string_view port;
  const size_t colon = text.rfind(':');
  const size_t bracket = text.find(']');
  const bool is_v6 = text.starts_with('[') && bracket != std::string_view::npos;
  if (colon != std::string_view::npos && (!is_v6 || colon > bracket)) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (port.empty() || port.size() > 5) return false;
  }
  if (needs_port && port.empty()) return false;
  if (!std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; })) return false;
  if (!is_v6) return IsName(host);
  host = host.substr(1);
  if (!host.ends_with(']')) return false;
  host.remove_suffix(1);
  return !host.empty() &&
         std::ranges::all_of(host, [](char c) { return c == ':' || c == '.' || IsNameChar(c); });
}

std::vector<std::string_view> Parts(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t slash = std::min(text.find('/'), text.size());
    if (slash > 0) parts.push_back(text.substr(0, slash));
    text.remove_prefix(std::min(slash + 1, text.size()));
  }
  return parts;
}

Status WrongAddress(const Scheme& scheme, std::string_view text, std::string_view what) {
  return InvalidArgument("'" + std::string(text) + "': " + std::string(what) + "; an address is " +
                         std::string(scheme.form));
}

// Takes a host that `parts` begin with, and gives the origin that it stands for.
std::string TakeEndpoint(std::string_view rest, std::vector<std::string_view>& parts) {
  for (const std::string_view protocol : {"http:", "https:"}) {
    const bool is_named =
        parts.size() > 1 && parts[0] == protocol && rest.starts_with(std::string(protocol) + "//");
    if (!is_named) continue;
    if (!IsHost(parts[1], /*needs_port=*/false)) return {};
    std::string origin = std::string(protocol) + "//" + std::string(parts[1]);
    parts.erase(parts.begin(), parts.begin() + 2);
    return origin;
  }
  if (parts.empty() || !IsHost(parts[0], /*needs_port=*/true)) return {};
  std::string origin = "http://" + std::string(parts[0]);
  parts.erase(parts.begin());
  return origin;
}

}  // namespace

std::string_view SchemeOf(Kind kind) { return FindScheme(kind).scheme; }
std::string_view ServiceOf(Kind kind) { return FindScheme(kind).service; }

bool IsAddress(std::string_view text) {
  return std::ranges::any_of(kSchemes, [&](const Scheme& s) { return text.starts_with(s.scheme); });
}

std::string Join(std::string_view prefix, std::string_view name) {
  std::string joined(prefix);
  if (!prefix.empty() && !name.empty()) joined += '/';
  return joined += name;
}

Result<Address> ParseAddress(std::string_view text) {
  const auto* scheme =
      std::ranges::find_if(kSchemes, [&](const Scheme& s) { return text.starts_with(s.scheme); });
  if (scheme == kSchemes.end()) return InvalidArgument("'" + std::string(text) + "' is no address");
  Address address{.kind = scheme->kind,
                  .text = std::string(text),
                  .endpoint = {},
                  .account = {},
                  .bucket = {},
                  .prefix = {}};
  const std::string_view rest = text.substr(scheme->scheme.size());
  if (HasControlBytes(rest)) return InvalidArgument("an address has control characters");
  std::vector<std::string_view> parts = Parts(rest);
  if (address.kind == Kind::kS3) address.endpoint = TakeEndpoint(rest, parts);
  if (address.kind == Kind::kAs) {
    if (parts.empty() || !IsName(parts[0]))
      return WrongAddress(*scheme, text, "an account is missing");
    address.account = parts[0];
    parts.erase(parts.begin());
  }
  if (parts.empty()) return WrongAddress(*scheme, text, "a bucket or container is missing");
  if (!IsName(parts[0]))
    return WrongAddress(*scheme, text, "'" + std::string(parts[0]) + "' is no name of a bucket");
  address.bucket = parts[0];
  parts.erase(parts.begin());
  for (const std::string_view part : parts) {
    if (part == "." || part == "..")
      return WrongAddress(*scheme, text, "a path has no '.' and no '..'");
    address.prefix = Join(address.prefix, part);
  }
  return address;
}

}  // namespace inflight::object_store
