// SPDX-License-Identifier: Apache-2.0
// Content codings gzip and deflate of /infer (docs/reference/protocol/http.md, "infer").
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "inflight/status.h"
#include "protocol/http_listener/http_message.h"

namespace inflight::kserve_http {

enum class Coding { kIdentity, kGzip, kDeflate };

// The body without its Content-Encoding; the body itself when it has none. The wrapper is detected
// from the data. kUnimplemented for other codings; kInvalidArgument for broken data and beyond
// `max_bytes`.
// What it unpacks to is charged to the request's connection, for as long as the body is kept.
Result<std::shared_ptr<const std::string>> DecodedBody(const http_listener::HttpRequest& request,
                                                       size_t max_bytes);

// The coding that an Accept-Encoding header asks for: the highest weight, of equal ones the first.
Coding AcceptedCoding(std::string_view accept_encoding);

// Compresses body and segments into one body and sets Content-Encoding.
Status Compress(Coding coding, http_listener::HttpResponse& response);

}  // namespace inflight::kserve_http
