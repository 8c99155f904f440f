// SPDX-License-Identifier: Apache-2.0
// Numbers as launchers write them.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace inflight::launch {

// None where `text` is anything but a decimal number of an int that is at least 0.
inline std::optional<int> WholeNumber(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  if (error != std::errc() || end != text.end() || value < 0) return std::nullopt;
  return value;
}

}  // namespace inflight::launch
