// SPDX-License-Identifier: Apache-2.0
// One POST of JSON over plain HTTP, on a connection of its own.
#pragma once

#include <chrono>
#include <string>

#include "inflight/status.h"

namespace inflight::otlp {

struct Url {
  std::string host;
  std::string port;  // "80" where the text has none
  std::string path;  // from the slash on
};

// kInvalidArgument for anything but http://host[:port][/path].
Result<Url> ParseUrl(const std::string& text);

// Waits for the answer, at most `timeout`. kUnavailable says why there is none, or which status
// but 2xx it has.
Status PostJson(const Url& url, std::string body, std::chrono::milliseconds timeout);

}  // namespace inflight::otlp
