// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>
#include <span>

namespace inflight::tokenizer {
namespace {

struct NewRange {
  char32_t first, last;
  uint8_t flags;
};

// Characters that Unicode 15.1 and 16.0 assigned (DerivedGeneralCategory.txt), by what matters
// here.
constexpr NewRange kSinceUnicode15[] = {
    {0x0897, 0x0897, kMark | kWord},     {0x1C89, 0x1C8A, kLetter | kWord},
    {0xA7CB, 0xA7CD, kLetter | kWord},   {0xA7DA, 0xA7DC, kLetter | kWord},
    {0x105C0, 0x105F3, kLetter | kWord}, {0x10D40, 0x10D49, kNumber | kWord},
    {0x10D4A, 0x10D65, kLetter | kWord}, {0x10D69, 0x10D6D, kMark | kWord},
    {0x10D6F, 0x10D85, kLetter | kWord}, {0x10EC2, 0x10EC4, kLetter | kWord},
    {0x10EFC, 0x10EFC, kMark | kWord},   {0x11380, 0x11389, kLetter | kWord},
    {0x1138B, 0x1138B, kLetter | kWord}, {0x1138E, 0x1138E, kLetter | kWord},
    {0x11390, 0x113B5, kLetter | kWord}, {0x113B7, 0x113B7, kLetter | kWord},
    {0x113B8, 0x113C0, kMark | kWord},   {0x113C2, 0x113C2, kMark | kWord},
    {0x113C5, 0x113C5, kMark | kWord},   {0x113C7, 0x113CA, kMark | kWord},
    {0x113CC, 0x113D0, kMark | kWord},   {0x113D1, 0x113D1, kLetter | kWord},
    {0x113D2, 0x113D2, kMark | kWord},   {0x113D3, 0x113D3, kLetter | kWord},
    {0x113E1, 0x113E2, kMark | kWord},   {0x116D0, 0x116E3, kNumber | kWord},
    {0x11BC0, 0x11BE0, kLetter | kWord}, {0x11BF0, 0x11BF9, kNumber | kWord},
    {0x11F5A, 0x11F5A, kMark | kWord},   {0x13460, 0x143FA, kLetter | kWord},
    {0x16100, 0x1611D, kLetter | kWord}, {0x1611E, 0x1612F, kMark | kWord},
    {0x16130, 0x16139, kNumber | kWord}, {0x16D40, 0x16D6C, kLetter | kWord},
    {0x16D70, 0x16D79, kNumber | kWord}, {0x18CFF, 0x18CFF, kLetter | kWord},
    {0x1CCF0, 0x1CCF9, kNumber | kWord}, {0x1E5D0, 0x1E5ED, kLetter | kWord},
    {0x1E5EE, 0x1E5EF, kMark | kWord},   {0x1E5F0, 0x1E5F0, kLetter | kWord},
    {0x1E5F1, 0x1E5FA, kNumber | kWord}, {0x2EBF0, 0x2EE5D, kLetter | kWord},
};

// Alphabetic characters that are symbols by category (circled and squared Latin letters) and the
// two joiners.
constexpr NewRange kOtherWord[] = {
    {0x200C, 0x200D, kWord},   {0x24B6, 0x24E9, kWord},   {0x1F130, 0x1F149, kWord},
    {0x1F150, 0x1F169, kWord}, {0x1F170, 0x1F189, kWord},
};

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

uint8_t CategoryFlags(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter | kWord;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark | kWord;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
      return kNumber | kWord;
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_PC:
      return kWord;
    default:
      return 0;
  }
}

// Adds to `block`, which starts at character `base`, what `ranges` say of its characters.
void AddRanges(std::span<const NewRange> ranges, char32_t base, std::array<uint8_t, 256>& block) {
  for (const NewRange& r : ranges) {
    for (char32_t c = std::max(r.first, base); c <= r.last && c < base + 256; ++c) {
      block[c - base] |= r.flags;
    }
  }
}

}  // namespace

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
  for (char32_t high = 0; high < block_of_.size(); ++high) {
    Block block;
    for (char32_t low = 0; low < 256; ++low) {
      const char32_t c = high << 8 | low;
      block[low] = CategoryFlags(c) | (IsWhiteSpace(c) ? kSpace : 0);
    }
    AddRanges(kSinceUnicode15, high << 8, block);
    AddRanges(kOtherWord, high << 8, block);
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
