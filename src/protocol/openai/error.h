// SPDX-License-Identifier: Apache-2.0
// Errors as clients of OpenAI's API know them (docs/reference/protocol/openai.md, "Errors"):
//   {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
#pragma once

#include <string>

#include "inflight/status.h"
#include "protocol/http_listener/http_message.h"

namespace inflight::openai {

// The one table from status codes to HTTP of this front end.
int HttpStatusOf(const Status& status);

void AppendError(const Status& status, std::string& out);
http_listener::HttpResponse ErrorWith(const Status& status, int http_status);
http_listener::HttpResponse Error(const Status& status);
// The same with a status of HTTP that no code has: 404 of a path, 405, 413.
http_listener::HttpResponse ErrorOf(int http_status, std::string message);

}  // namespace inflight::openai
