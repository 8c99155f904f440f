// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace inflight {

// None when `lines` is not base64; padding at the end may be missing. Line breaks and blanks are
// passed over (RFC 2045, section 6.8): encoders of some clients put them in.
std::optional<std::string> DecodeBase64(std::string_view lines);

// With padding, in one line.
std::string EncodeBase64(std::string_view bytes);

}  // namespace inflight
