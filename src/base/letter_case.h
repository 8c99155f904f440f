// SPDX-License-Identifier: Apache-2.0
// Letter case of ASCII, as names in protocols have it, whatever the locale.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace inflight {

constexpr char AsciiLower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline std::string AsciiLower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return AsciiLower(c); });
  return lower;
}

inline bool EqualInAnyCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return x == y || AsciiLower(x) == AsciiLower(y); });
}

}  // namespace inflight
