// SPDX-License-Identifier: Apache-2.0
// Values of header fields with the blanks behind them, which are no part of a value by RFC 9110,
// 5.5, and which Triton forwards to models all the same (docs/reference/protocol/common.md, "Header
// forwarding").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "protocol/http_listener/http_message.h"

namespace inflight::http_listener {

// One for each of `headers`, which are those of `head`: the bytes of a request from its first line
// to its empty line. Of a value that is blanks alone, or nothing, a blank is left. One that is
// folded over several lines is as in `headers`.
std::vector<std::string> RawValues(std::string_view head, const Headers& headers);

}  // namespace inflight::http_listener
