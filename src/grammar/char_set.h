// SPDX-License-Identifier: Apache-2.0
// A set of characters: the Unicode scalar values, which are the code points without surrogates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace inflight::grammar {

struct CharRange {
  uint32_t first;
  uint32_t last;  // within

  bool operator==(const CharRange&) const = default;
};

inline constexpr uint32_t kMaxChar = 0x10FFFF;

class CharSet {
 public:
  CharSet() = default;
  // In any order; may overlap. Surrogates among them are left out.
  explicit CharSet(std::vector<CharRange> ranges);

  static CharSet Any() { return CharSet({{0, kMaxChar}}); }

  // Sorted, apart by at least one character.
  std::span<const CharRange> ranges() const& { return ranges_; }
  std::vector<CharRange> ranges() && { return std::move(ranges_); }
  bool empty() const { return ranges_.empty(); }
  bool Has(uint32_t c) const;

  CharSet Complement() const;
  CharSet Union(const CharSet& other) const;
  CharSet Intersection(const CharSet& other) const;

 private:
  std::vector<CharRange> ranges_;
};

// Bytes [first[i], last[i]] for each i < size, one behind the other.
struct ByteRanges {
  uint8_t first[4];
  uint8_t last[4];
  int size;
};

// The UTF-8 of the characters of `range`, which has no surrogate, as ranges of bytes.
std::vector<ByteRanges> Utf8Ranges(CharRange range);

void AppendUtf8(uint32_t c, std::string& out);

// The character that `text` begins with, which is taken away; kNoChar where that is no UTF-8 or
// `text` is empty, and nothing is taken.
inline constexpr uint32_t kNoChar = UINT32_MAX;
uint32_t TakeChar(std::string_view& text);

bool IsUtf8(std::string_view text);

}  // namespace inflight::grammar
