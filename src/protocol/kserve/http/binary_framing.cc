// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/binary_framing.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include "base/status_macros.h"
#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {
namespace {

constexpr char kLengthHeader[] = "Inference-Header-Content-Length";

}  // namespace

Result<std::optional<std::string_view>> BinaryFraming::LengthText(
    const http_listener::HttpRequest& request) const {
  using Text = std::optional<std::string_view>;
  const std::string* value = request.FindHeader(prefix_.empty() ? kLengthHeader : "Content-Type");
  if (value == nullptr) return Text();
  if (prefix_.empty()) return Text(*value);
  const size_t place = value->find(prefix_);
  if (place == std::string::npos) return Text();
  if (place > 0) {
    return InvalidArgument("expect MIME type for binary data starts with '" + prefix_ +
                           "', got: " + *value);
  }
  return Text(std::string_view(*value).substr(prefix_.size()));
}

Status BinaryFraming::Unable(std::string_view why) const {
  return InvalidArgument(fmt::format("Unable to parse {}{}",
                                     prefix_.empty() ? kLengthHeader : "json-header-size", why));
}

bool BinaryFraming::HasBinaryPart(const http_listener::HttpRequest& head) const {
  const auto length = LengthText(head);
  return length.ok() && *length && **length != "0";
}

Result<std::optional<size_t>> BinaryFraming::JsonLength(const http_listener::HttpRequest& request,
                                                        size_t body_bytes) const {
  ASSIGN_OR_RETURN(const std::optional<std::string_view> text, LengthText(request));
  if (!text) return std::optional<size_t>();
  // As strtol reads it: a sign may stand in front, and what follows the digits is left alone.
  const std::string digits(*text);
  char* end = nullptr;
  errno = 0;
  const long length = std::strtol(digits.c_str(), &end, 10);
  if (end == digits.c_str()) return Unable(fmt::format(", got: {}", *text));
  using Bounds = std::numeric_limits<int32_t>;
  if (errno == ERANGE || length < Bounds::min() || length > Bounds::max()) {
    return Unable(fmt::format(", value is out of range [ {}, {} ], got: {}", Bounds::min(),
                              Bounds::max(), *text));
  }
  if (length < 0 || static_cast<size_t>(length) > body_bytes) {
    return InvalidArgument(fmt::format("inference header size should be in range (0, {}), got: {}",
                                       body_bytes, *text));
  }
  return std::optional<size_t>(length);
}

http_listener::Headers BinaryFraming::AnswerHeaders(size_t json_bytes) const {
  http_listener::Headers headers;
  if (!prefix_.empty()) {
    headers.emplace_back("Content-Type", prefix_ + std::to_string(json_bytes));
    return headers;
  }
  headers.reserve(2);
  headers.emplace_back("Content-Type", kBinary);
  headers.emplace_back(kLengthHeader, std::to_string(json_bytes));
  return headers;
}

}  // namespace inflight::kserve_http
