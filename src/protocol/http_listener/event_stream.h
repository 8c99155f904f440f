// SPDX-License-Identifier: Apache-2.0
// Server-sent events as text (HTML Living Standard, "Server-sent events"), appended to a chunk:
//   event: NAME\ndata: ONE LINE\n\n
// The data is one line of JSON, which the caller appends between Begin and End.
#pragma once

#include <string>
#include <string_view>

namespace inflight::http_listener {

// An event without a name is a "message".
inline void BeginEvent(std::string& out, std::string_view name = {}) {
  if (!name.empty()) out.append("event: ").append(name).append("\n");
  out.append("data: ");
}

inline void EndEvent(std::string& out) { out.append("\n\n"); }

inline void AppendEvent(std::string& out, std::string_view name, std::string_view data) {
  BeginEvent(out, name);
  out.append(data);
  EndEvent(out);
}

}  // namespace inflight::http_listener
