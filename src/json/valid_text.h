// SPDX-License-Identifier: Apache-2.0
// Text that any reader of JSON takes, whatever bytes it comes from.
#pragma once

#include <string>
#include <string_view>

namespace inflight::json {

// `text` with U+FFFD in place of what is no UTF-8 (RFC 3629, section 4): one for each longest part
// that begins a character and is not continued.
std::string ValidText(std::string_view text);

}  // namespace inflight::json
