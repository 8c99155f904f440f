// SPDX-License-Identifier: Apache-2.0
// Names that come from strangers: of models, files, folders, keys, regions.
#pragma once

#include <algorithm>
#include <string_view>

namespace inflight {

// Bytes below 0x20 and 0x7f: a NUL, at which the system ends a name, and what moves the cursor of
// whoever reads it, among them. The one rule of all names that are refused for such bytes.
inline bool HasControlBytes(std::string_view name) {
  return std::ranges::any_of(name, [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; });
}

}  // namespace inflight
