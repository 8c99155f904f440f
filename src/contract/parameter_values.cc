// SPDX-License-Identifier: Apache-2.0
#include "contract/parameter_values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>

#include "base/letter_case.h"

namespace inflight::contract {
namespace {

std::string_view SkipBlanks(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) {
    text.remove_prefix(1);
  }
  if (text.starts_with('+')) text.remove_prefix(1);
  return text;
}

template <size_t N>
bool IsOneOf(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

}  // namespace

bool IsUnfilled(std::string_view text) {
  return SkipBlanks(text).empty() || text.find("${") != std::string_view::npos;
}

std::optional<int64_t> LeadingInt(std::string_view text) {
  text = SkipBlanks(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

std::optional<double> LeadingDouble(std::string_view text) {
  text = SkipBlanks(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<bool> StrictBool(std::string_view text) {
  if (IsOneOf(text, std::to_array<std::string_view>({"True", "true", "TRUE", "1"}))) return true;
  if (IsOneOf(text, std::to_array<std::string_view>({"False", "false", "FALSE", "0"}))) {
    return false;
  }
  return std::nullopt;
}

std::optional<bool> TokenizerBool(std::string_view text) {
  std::string lower(SkipBlanks(text));
  while (!lower.empty() && std::isspace(static_cast<unsigned char>(lower.back()))) {
    lower.pop_back();
  }
  lower = AsciiLower(lower);
  if (IsOneOf<5>(lower, {"true", "1", "t", "y", "yes"})) return true;
  if (IsOneOf<5>(lower, {"false", "0", "f", "n", "no"})) return false;
  return std::nullopt;
}

}  // namespace inflight::contract
