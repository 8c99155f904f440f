// SPDX-License-Identifier: Apache-2.0
// Requests as lines of a file (docs/shadow.md, "Requests in a file").
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "inflight/status.h"
#include "protocol/http_client/http_client.h"

namespace inflight::shadow {

struct RecordedRequest {
  std::string method;
  std::string path;  // with the query
  http_client::Headers headers;
  std::string body;
};

// kInvalidArgument says what of the line is wrong.
Result<RecordedRequest> ParseRecordedRequest(const std::string& line);
std::string WriteRecordedRequest(const RecordedRequest& request);  // a line, without its end

// Of one connection and of nobody behind it: left out of a record and of what is sent on.
bool IsHopByHop(std::string_view header);

}  // namespace inflight::shadow
