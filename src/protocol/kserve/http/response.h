// SPDX-License-Identifier: Apache-2.0
// Answers that all endpoints share, and the one table from status codes to HTTP.
#pragma once

#include <string>
#include <string_view>

#include "inflight/status.h"
#include "protocol/http_listener/http_message.h"

namespace inflight::kserve_http {

inline constexpr std::string_view kJson = "application/json";
inline constexpr std::string_view kText = "text/plain";
inline constexpr std::string_view kBinary = "application/octet-stream";
inline constexpr std::string_view kEventStream = "text/event-stream; charset=utf-8";

int HttpStatus(const Status& status);  // docs/reference/protocol/common.md, "Errors"

http_listener::HttpResponse Answer(int status, std::string_view content_type,
                                   std::string body = {});

// 200 with an empty body, or the error.
http_listener::HttpResponse Done(const Status& status);

// {"error":"<message>"}. Which errors are labelled text/plain is as Triton has it
// (docs/reference/protocol/http.md, "Errors").
http_listener::HttpResponse Error(const Status& status, std::string_view content_type = kJson);

// Says when to ask again, where that is known.
void AddRetryAfter(const Status& status, http_listener::Headers& headers);

// Marks an error's response with its reason, and says when to ask again.
void SetReason(const Status& status, http_listener::HttpResponse& response);

// 405
http_listener::HttpResponse MethodNotAllowed(std::string_view content_type);

}  // namespace inflight::kserve_http
