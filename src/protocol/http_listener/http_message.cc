// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/http_message.h"

#include "base/letter_case.h"

namespace inflight::http_listener {

std::string_view HttpRequest::path() const {
  std::string_view path = target;
  if (const size_t scheme = path.find("://");
      scheme != std::string_view::npos && !path.starts_with('/')) {
    const size_t slash = path.find('/', scheme + 3);
    path = slash == std::string_view::npos ? "/" : path.substr(slash);
  }
  return path.substr(0, path.find('?'));
}

std::string_view MediaType(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  return type;
}

const std::string* HttpRequest::FindHeader(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (EqualInAnyCase(key, name)) return &value;
  }
  return nullptr;
}

size_t HttpResponse::num_bytes() const {
  size_t bytes = body.size();
  for (const Segment& segment : segments) bytes += segment.data.size();
  return bytes;
}

}  // namespace inflight::http_listener
