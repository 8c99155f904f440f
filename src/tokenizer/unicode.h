// SPDX-License-Identifier: Apache-2.0
// UTF-8 and the character classes that tokenizers split by.
//
// Classes are those of the `tokenizers` package (Unicode 16), by a table that is made from it
// (char_ranges.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace inflight::tokenizer {

inline constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";  // U+FFFD
inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581, a blank in vocabularies

struct Char {
  char32_t code;
  uint32_t size;  // bytes of its UTF-8 form
};

// The character at `p`, which must be the start of one in valid UTF-8.
inline Char CharAt(const char* p) {
  const auto b = [p](int i) { return static_cast<char32_t>(static_cast<unsigned char>(p[i])); };
  if (b(0) < 0x80) return {b(0), 1};
  if (b(0) < 0xE0) return {(b(0) & 0x1F) << 6 | (b(1) & 0x3F), 2};
  if (b(0) < 0xF0) return {(b(0) & 0x0F) << 12 | (b(1) & 0x3F) << 6 | (b(2) & 0x3F), 3};
  return {(b(0) & 0x07) << 18 | (b(1) & 0x3F) << 12 | (b(2) & 0x3F) << 6 | (b(3) & 0x3F), 4};
}

// The character that ends at `end` of `text` (valid UTF-8, end > 0).
Char CharBefore(std::string_view text, size_t end);

void AppendUtf8(char32_t code, std::string& out);

// Offset of the first byte that is not valid UTF-8, if any.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

// How a byte sequence begins: a character, the start of one that more bytes could complete, or
// bytes that begin none (the maximal subpart that one U+FFFD stands for, Unicode 16 section 3.9).
struct Utf8Prefix {
  enum Kind { kCharacter, kIncomplete, kInvalid } kind;
  uint32_t size;
};
Utf8Prefix ClassifyUtf8(std::string_view bytes);  // bytes must not be empty

enum CharFlag : uint8_t {
  kLetter = 1,        // \p{L}
  kNumber = 2,        // \p{N}
  kSpace = 4,         // White_Space
  kMark = 8,          // what StripAccents drops: \p{M} of an older Unicode
  kWord = 16,         // \w of UTS #18: Alphabetic, M, Nd, Pc, Join_Control
  kPunctuation = 32,  // ASCII's, and \p{P} of an older Unicode
  kControl = 64,      // what BertNormalizer drops in clean_text: U+0000, U+FFFD, old \p{C}
  kNonspacing = 128,  // what BertNormalizer drops in strip_accents: \p{Mn} of an older Unicode
};

class CharTable {
 public:
  static const CharTable& Get();  // built on first use

  uint8_t Flags(char32_t code) const { return blocks_[block_of_[code >> 8]][code & 0xFF]; }
  uint8_t FlagsAt(const char* p, uint32_t* size) const {
    const auto b = static_cast<unsigned char>(*p);
    if (b < 0x80) {
      *size = 1;
      return blocks_[0][b];
    }
    const Char c = CharAt(p);
    *size = c.size;
    return Flags(c.code);
  }

 private:
  using Block = std::array<uint8_t, 256>;
  CharTable();

  std::array<uint16_t, 0x110000 / 256> block_of_{};
  std::vector<Block> blocks_;  // distinct ones; block 0 holds U+0000 to U+00FF
};

// The byte-level alphabet of GPT-2: every byte has a printable character, so that any text is a
// string of vocabulary symbols. Printable Latin-1 stands for itself, the rest for U+0100 onwards.
class ByteAlphabet {
 public:
  static const ByteAlphabet& Get();

  std::string_view Symbol(uint8_t byte) const { return symbols_[byte]; }
  std::string Spell(std::string_view bytes) const;
  // The bytes that `token` spells, or nothing if a character of it is outside the alphabet.
  std::optional<std::string> ToBytes(std::string_view token) const;

 private:
  ByteAlphabet();
  std::array<std::string, 256> symbols_;
  std::array<int16_t, 0x144> byte_of_;  // -1: not in the alphabet
};

}  // namespace inflight::tokenizer
