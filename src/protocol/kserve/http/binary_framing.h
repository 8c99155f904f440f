// SPDX-License-Identifier: Apache-2.0
// How a body says where its JSON ends and its binary tensors begin: by a header of its own
// (docs/reference/protocol/http.md, "infer"), or, for hosting platforms that pass no such header
// on, by a parameter of its media type.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "inflight/status.h"
#include "protocol/http_listener/http_message.h"

namespace inflight::kserve_http {

class BinaryFraming {
 public:
  // Inference-Header-Content-Length: N
  BinaryFraming() = default;
  // Content-Type: <prefix>N, where the prefix ends with "json-header-size=".
  explicit BinaryFraming(std::string content_type_prefix)
      : prefix_(std::move(content_type_prefix)) {}

  // Whether binary tensors may follow the JSON of a request with this head.
  bool HasBinaryPart(const http_listener::HttpRequest& head) const;

  // Bytes of JSON in front of the binary tensors; unset where the whole body is JSON.
  // kInvalidArgument when it is no number or beyond the body.
  Result<std::optional<size_t>> JsonLength(const http_listener::HttpRequest& request,
                                           size_t body_bytes) const;

  // The headers of an answer whose JSON is followed by binary tensors.
  http_listener::Headers AnswerHeaders(size_t json_bytes) const;

 private:
  // The text of the number, within `request`; null where the request has none.
  Result<std::optional<std::string_view>> LengthText(
      const http_listener::HttpRequest& request) const;
  Status Unable(std::string_view why) const;  // to read that number

  std::string prefix_;  // empty: the header
};

}  // namespace inflight::kserve_http
