// SPDX-License-Identifier: Apache-2.0
// The grammar of RFC 8259 with NaN, Inf and Infinity, checked without recursion.
#pragma once

#include <string_view>

#include "inflight/status.h"

namespace inflight::json {

// kInternal: "failed to parse the request JSON buffer: <what> at <byte>".
Status Validate(std::string_view text);

// A number token of valid JSON as a double: correctly rounded, infinite where too big.
double NumberToDouble(std::string_view token);

}  // namespace inflight::json
