// SPDX-License-Identifier: Apache-2.0
#include "json/valid_text.h"

#include <cstddef>
#include <cstdint>

namespace inflight::json {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// What a first byte asks for.
struct Form {
  size_t length = 0;                // bytes; 0: it begins nothing
  uint8_t low = 0x80, high = 0xBF;  // bounds of the second byte
};

Form FormOf(uint8_t first) {
  if (first < 0x80) return {.length = 1};
  if (first < 0xC2) return {};
  if (first < 0xE0) return {.length = 2};
  if (first == 0xE0) return {.length = 3, .low = 0xA0};
  if (first == 0xED) return {.length = 3, .high = 0x9F};  // no surrogates
  if (first < 0xF0) return {.length = 3};
  if (first == 0xF0) return {.length = 4, .low = 0x90};
  if (first < 0xF4) return {.length = 4};
  if (first == 0xF4) return {.length = 4, .high = 0x8F};
  return {};
}

}  // namespace

std::string ValidText(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    Form form = FormOf(static_cast<uint8_t>(text[0]));
    size_t length = 1;
    for (; length < form.length && length < text.size(); ++length) {
      const auto byte = static_cast<uint8_t>(text[length]);
      if (byte < form.low || byte > form.high) break;
      form.low = 0x80;
      form.high = 0xBF;
    }
    valid.append(length == form.length ? text.substr(0, length) : kReplacement);
    text.remove_prefix(length);
  }
  return valid;
}

}  // namespace inflight::json
