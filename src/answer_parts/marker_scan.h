// SPDX-License-Identifier: Apache-2.0
// Looks for markers in a text that comes byte by byte: what may still become one is held back.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace inflight::answer_parts {

class MarkerScan {
 public:
  // None is the beginning of another.
  explicit MarkerScan(std::vector<std::string_view> markers) : markers_(std::move(markers)) {}

  // The marker that ends with `c`. What is of none is appended to `passed`.
  std::optional<std::string_view> Add(char c, std::string& passed);

  // The text ended.
  std::string TakeHeld() { return std::exchange(held_, {}); }

 private:
  std::vector<std::string_view> markers_;
  std::string held_;
};

}  // namespace inflight::answer_parts
