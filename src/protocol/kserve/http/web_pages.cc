// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/web_pages.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

#include "base/letter_case.h"
#include "base/status_macros.h"

namespace inflight::kserve_http {
namespace {

using http_listener::HttpRequest;

constexpr size_t kMaxQuotedHeader = 100;  // bytes of a value in an error

// "name:80", "1.2.3.4", "[::1]:80" in its two parts.
struct Authority {
  std::string_view name;  // without brackets and final dot
  std::string_view port;  // empty: the scheme's
};

Authority Split(std::string_view text) {
  Authority parts;
  if (text.starts_with('[')) {
    const size_t end = std::min(text.find(']'), text.size());
    parts.name = text.substr(1, end - 1);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (text.starts_with(':')) parts.port = text.substr(1);
    return parts;
  }
  const size_t colon = std::min(text.rfind(':'), text.size());
  parts.name = text.substr(0, colon);
  if (colon < text.size()) parts.port = text.substr(colon + 1);
  if (parts.name.ends_with('.')) parts.name.remove_suffix(1);
  return parts;
}

bool IsIpAddress(std::string_view name) {
  const std::string text(name);
  std::array<unsigned char, sizeof(in6_addr)> address;
  return inet_pton(AF_INET, text.c_str(), address.data()) == 1 ||
         inet_pton(AF_INET6, text.c_str(), address.data()) == 1;
}

// Of one header: "" where there is none.
std::string_view ValueOf(const HttpRequest& head, std::string_view name) {
  const std::string* value = head.FindHeader(name);
  return value != nullptr ? std::string_view(*value) : std::string_view();
}

// A browser asks the server before it sends either for a page of another host. The second is what
// tritonclient's asyncio client says of JSON.
bool NeedsPreflight(std::string_view content_type) {
  const std::string_view type = http_listener::MediaType(content_type);
  return EqualInAnyCase(type, "application/json") ||
         EqualInAnyCase(type, "application/octet-stream");
}

Status Refused(std::string_view header, std::string_view value, const std::string& what) {
  return Status(StatusCode::kPermissionDenied, std::string(header) + ": got '" +
                                                   std::string(value.substr(0, kMaxQuotedHeader)) +
                                                   "', " + what)
      .WithField(header);
}

}  // namespace

Status CheckHostName(std::string_view name) {
  const bool is_bare = !name.empty() && name.find_first_of("/:@ *") == std::string_view::npos;
  return is_bare ? Status::Ok()
                 : InvalidArgument("--http-allowed-host",
                                   "got '" + std::string(name) +
                                       "', a host's name is needed without scheme and port, such "
                                       "as inflight.example.com");
}

bool WebPageRule::IsAllowed(std::string_view name) const {
  return std::any_of(allowed_hosts.begin(), allowed_hosts.end(),
                     [&](const std::string& allowed) { return EqualInAnyCase(allowed, name); });
}

Status WebPageRule::CheckHost(std::string_view host) const {
  const std::string_view name = Split(host).name;
  if (IsIpAddress(name) || EqualInAnyCase(name, "localhost") || IsAllowed(name)) return {};
  return Refused("Host", host,
                 "the server does not know this name of it: call it by its address or as "
                 "localhost, or start it with --http-allowed-host NAME");
}

// Browsers say of which page a POST comes: its scheme, name and port, or "null".
Status WebPageRule::CheckOrigin(const HttpRequest& head, std::string_view host,
                                bool may_change) const {
  const std::string* origin = head.FindHeader("Origin");
  if (origin == nullptr) {
    const std::string_view site = ValueOf(head, "Sec-Fetch-Site");
    if (site != "cross-site" && site != "same-site") return {};
    return Refused("Sec-Fetch-Site", site,
                   "web pages of other hosts may not call the server; start it with "
                   "--http-allowed-host NAME of the page's host for those that may, and have the "
                   "page send its Origin");
  }
  if (cors_origins.Names(*origin) || (cors_origins.is_any() && !may_change)) return {};
  const size_t scheme_end = origin->find("://");
  if (scheme_end != std::string::npos) {
    const std::string_view scheme = std::string_view(*origin).substr(0, scheme_end);
    const std::string_view usual = scheme == "https" ? "443" : "80";
    const auto port = [&](const Authority& a) { return a.port.empty() ? usual : a.port; };
    const Authority page = Split(std::string_view(*origin).substr(scheme_end + 3));
    const Authority own = Split(host);
    if (EqualInAnyCase(page.name, own.name) && port(page) == port(own)) return {};
    if (IsAllowed(page.name)) return {};
  }
  return Refused("Origin", *origin,
                 "web pages of other hosts than the server's own may not call it; start it with "
                 "--http-allowed-host NAME for the pages of that host");
}

Status WebPageRule::Check(const HttpRequest& head, kserve::Api api) const {
  const std::string* host = head.FindHeader("Host");
  if (knows_its_names && host != nullptr) RETURN_IF_ERROR(CheckHost(*host));
  if (head.method == "GET" || head.method == "HEAD") return {};  // changes nothing
  const bool may_change = kserve::RowOf(api).changes_the_server;
  RETURN_IF_ERROR(CheckOrigin(head, host != nullptr ? *host : std::string_view(), may_change));
  if (!may_change) return {};
  const bool is_browser =
      head.FindHeader("Origin") != nullptr || head.FindHeader("Sec-Fetch-Site") != nullptr;
  const std::string_view content_type = ValueOf(head, "Content-Type");
  if (!is_browser || NeedsPreflight(content_type)) return {};
  return Refused("Content-Type", content_type,
                 "a page's call that changes the server needs 'application/json', which no page of "
                 "another host can send");
}

}  // namespace inflight::kserve_http
