// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/unicode.h"

#include <algorithm>
#include <map>

#include "tokenizer/char_ranges.h"

namespace inflight::tokenizer {

Char CharBefore(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return CharAt(text.data() + begin);
}

void AppendUtf8(char32_t code, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

Utf8Prefix ClassifyUtf8(std::string_view bytes) {
  const auto at = [bytes](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return {Utf8Prefix::kCharacter, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Prefix::kInvalid, 1};
  const uint32_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Only the second byte has a narrower range than 80..BF (Unicode table 3-7).
  unsigned char low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (uint32_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {Utf8Prefix::kIncomplete, i};
    if (at(i) < low || at(i) > high) return {Utf8Prefix::kInvalid, i};
    low = 0x80, high = 0xBF;
  }
  return {Utf8Prefix::kCharacter, size};
}

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (i + 8 <= text.size()) {  // eight ASCII bytes at a time
      uint64_t word;
      __builtin_memcpy(&word, text.data() + i, 8);
      if ((word & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const Utf8Prefix p = ClassifyUtf8(text.substr(i));
    if (p.kind != Utf8Prefix::kCharacter) return i;
    i += p.size;
  }
  return std::nullopt;
}

CharTable::CharTable() {
  std::map<Block, uint16_t> seen;
  const CharRange* next = std::begin(kCharRanges);
  for (char32_t high = 0; high < block_of_.size(); ++high) {
    Block block{};
    const char32_t begin = high << 8;
    const char32_t end = begin + 256;
    for (; next != std::end(kCharRanges) && next->first < end; ++next) {
      for (char32_t c = std::max(next->first, begin); c <= next->last && c < end; ++c) {
        block[c - begin] = next->flags;
      }
      if (next->last >= end) break;  // it goes on in the next block
    }
    const auto [it, inserted] = seen.emplace(block, static_cast<uint16_t>(blocks_.size()));
    if (inserted) blocks_.push_back(block);
    block_of_[high] = it->second;
  }
}

const CharTable& CharTable::Get() {
  static const CharTable table;
  return table;
}

ByteAlphabet::ByteAlphabet() {
  byte_of_.fill(-1);
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
    const char32_t code = printable ? b : next++;
    AppendUtf8(code, symbols_[b]);
    byte_of_[code] = static_cast<int16_t>(b);
  }
}

const ByteAlphabet& ByteAlphabet::Get() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

std::string ByteAlphabet::Spell(std::string_view bytes) const {
  std::string token;
  for (const char c : bytes) token += Symbol(static_cast<uint8_t>(c));
  return token;
}

std::optional<std::string> ByteAlphabet::ToBytes(std::string_view token) const {
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const Char c = CharAt(token.data() + i);
    if (c.code >= byte_of_.size() || byte_of_[c.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_of_[c.code]));
    i += c.size;
  }
  return bytes;
}

}  // namespace inflight::tokenizer
