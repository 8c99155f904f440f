// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/binary_framing.h"

#include <charconv>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>

#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {
namespace {

constexpr char kLengthHeader[] = "Inference-Header-Content-Length";

}  // namespace

Result<std::optional<std::string>> BinaryFraming::LengthText(
    const http_listener::HttpRequest& request) const {
  const std::string* value = request.FindHeader(prefix_.empty() ? kLengthHeader : "Content-Type");
  if (value == nullptr) return std::optional<std::string>();
  if (prefix_.empty()) return std::optional<std::string>(*value);
  const size_t place = value->find(prefix_);
  if (place == value->npos) return std::optional<std::string>();
  if (place > 0) {
    return InvalidArgument("expect MIME type for binary data starts with '" + prefix_ +
                           "', got: " + *value);
  }
  return std::optional<std::string>(value->substr(prefix_.size()));
}

bool BinaryFraming::HasBinaryPart(const http_listener::HttpRequest& head) const {
  const auto length = LengthText(head);
  return length.ok() && *length && **length != "0";
}

Result<std::optional<size_t>> BinaryFraming::JsonLength(const http_listener::HttpRequest& request,
                                                        size_t body_bytes) const {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  ASSIGN_OR_RETURN(const std::optional<std::string> text, LengthText(request));
  if (!text) return std::optional<size_t>();
  const std::string unable =
      std::string("Unable to parse ") + (prefix_.empty() ? kLengthHeader : "json-header-size");
  int64_t length = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), length);
  if (error == std::errc::invalid_argument) {
    return InvalidArgument(unable + ", got: " + *text);
  }
  if (error == std::errc::result_out_of_range || length < 0 || length > kMax) {
    return InvalidArgument(unable + ", value is out of range [ 0, " + std::to_string(kMax) +
                           " ], got: " + *text);
  }
  if (static_cast<size_t>(length) > body_bytes) {
    return InvalidArgument("inference header size should be in range (0, " +
                           std::to_string(body_bytes) + "), got: " + *text);
  }
  return std::optional<size_t>(length);
}

http_listener::Headers BinaryFraming::AnswerHeaders(size_t json_bytes) const {
  const std::string length = std::to_string(json_bytes);
  if (!prefix_.empty()) return {{"Content-Type", prefix_ + length}};
  return {{"Content-Type", std::string(kBinary)}, {kLengthHeader, length}};
}

}  // namespace inflight::kserve_http
