// SPDX-License-Identifier: Apache-2.0
// Errors as clients of Anthropic's API know them (docs/reference/protocol/anthropic.md, "Errors"):
//   {"type": "error", "error": {"type": ..., "message": ...}}
#pragma once

#include <string>

#include "inflight/status.h"
#include "protocol/http_listener/http_message.h"

namespace inflight::anthropic {

// `http_status` is the one that OpenAI's API would answer with; this API has others for some.
http_listener::HttpResponse Error(const Status& status, int http_status);
http_listener::HttpResponse Error(const Status& status);

void AppendError(const Status& status, std::string& out);

}  // namespace inflight::anthropic
