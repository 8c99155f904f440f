// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace inflight {

// None when `text` is not base64; padding at the end may be missing.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace inflight
