// SPDX-License-Identifier: Apache-2.0
#include "base/base64.h"

#include <cstdint>

namespace inflight {
namespace {

// The 6 bits that a character stands for, or -1.
int Bits(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

std::optional<std::string> DecodeBase64(std::string_view lines) {
  std::string text;
  text.reserve(lines.size());
  for (const char c : lines) {
    if (!IsBlank(c)) text.push_back(c);
  }
  const bool is_padded = text.size() % 4 == 0;
  if (is_padded && text.ends_with('=')) text.pop_back();
  if (is_padded && text.ends_with('=')) text.pop_back();
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t buffer = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int bits = Bits(c);
    if (bits < 0) return std::nullopt;
    buffer = (buffer << 6) | static_cast<uint32_t>(bits);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<char>((buffer >> num_bits) & 0xFF));
  }
  return bytes;
}

std::string EncodeBase64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view group = bytes.substr(i, 3);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (k < group.size() ? static_cast<unsigned char>(group[k]) : 0U);
    for (size_t k = 0; k < 4; ++k)
      text += k <= group.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace inflight
