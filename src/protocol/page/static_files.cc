// SPDX-License-Identifier: Apache-2.0
#include "protocol/page/static_files.h"

#include <array>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>

#include "protocol/kserve/http/compression.h"
#include "protocol/page/embedded_files.h"

namespace inflight::page {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponse;

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kTypes = {{
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".json", "application/json"},
    {".svg", "image/svg+xml"},
}};

// The page loads nothing of others and is shown in no frame of theirs; a fault in its own code runs
// no script that came as text.
constexpr std::string_view kContentSecurity =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

std::string_view TypeOf(std::string_view name) {
  for (const auto& [end, type] : kTypes)
    if (name.ends_with(end)) return type;
  return "application/octet-stream";
}

// FNV-1a: 64 bits tell versions of a file apart.
std::string TagOf(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string tag;
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (int shift = 60; shift >= 0; shift -= 4) tag += kDigits[(hash >> shift) & 15];
  return tag;
}

// If-None-Match: *, or a list of tags (RFC 9110, 13.1.2), compared weakly.
bool HasTag(const HttpRequest& request, std::string_view quoted) {
  const std::string* tags = request.FindHeader("If-None-Match");
  return tags != nullptr && (*tags == "*" || tags->find(quoted) != std::string::npos);
}

http_listener::Segment SegmentOf(std::string_view bytes) {
  return {.data = std::as_bytes(std::span(bytes)), .owner = nullptr};
}

}  // namespace

StaticFiles::StaticFiles() {
  for (const EmbeddedFile& file : EmbeddedFiles())
    files_.emplace(std::piecewise_construct, std::forward_as_tuple(file.name),
                   std::forward_as_tuple(file.bytes, TagOf(file.bytes), TypeOf(file.name)));
}

std::optional<HttpResponse> StaticFiles::Find(std::string_view name, const HttpRequest& request) {
  const auto found = files_.find(name);
  if (found == files_.end()) return std::nullopt;
  File& file = found->second;
  const std::string* codings = request.FindHeader("Accept-Encoding");
  const bool is_gzip =
      codings != nullptr && kserve_http::AcceptedCoding(*codings) == kserve_http::Coding::kGzip;
  const std::string tag = "\"" + file.etag + (is_gzip ? "-gzip\"" : "\"");
  HttpResponse response{.headers = {{"ETag", tag},
                                    {"Cache-Control", "no-cache"},  // it asks whether it is current
                                    {"Vary", "Accept, Accept-Encoding"}}};
  if (HasTag(request, tag)) {
    response.status = 304;
    return response;
  }
  response.headers.emplace_back("Content-Type", file.content_type);
  response.headers.emplace_back("Content-Security-Policy", kContentSecurity);
  response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.headers.emplace_back("Referrer-Policy", "no-referrer");
  if (!is_gzip) {
    response.segments.push_back(SegmentOf(file.bytes));
    return response;
  }
  std::call_once(file.once, [&] {
    HttpResponse packed{.body = std::string(file.bytes)};
    if (kserve_http::Compress(kserve_http::Coding::kGzip, packed).ok())
      file.gzip = std::move(packed.body);
  });
  if (file.gzip.empty()) {  // it could not be packed
    response.segments.push_back(SegmentOf(file.bytes));
    return response;
  }
  response.headers.emplace_back("Content-Encoding", "gzip");
  response.segments.push_back(SegmentOf(file.gzip));
  return response;
}

}  // namespace inflight::page
