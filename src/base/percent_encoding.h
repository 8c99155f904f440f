// SPDX-License-Identifier: Apache-2.0
// Texts within URLs (RFC 3986, section 2).
#pragma once

#include <string>
#include <string_view>

namespace inflight {

// All but letters, digits, "-._~" and what `kept` has becomes %XX.
std::string PercentEncode(std::string_view text, std::string_view kept = {});

// A % without two digits stays. `plus_is_blank`: as in forms.
std::string PercentDecode(std::string_view text, bool plus_is_blank = false);

}  // namespace inflight
