// SPDX-License-Identifier: Apache-2.0
#include "grammar/char_set.h"

#include <algorithm>
#include <string>

namespace inflight::grammar {
namespace {

constexpr CharRange kSurrogates = {0xD800, 0xDFFF};

// The last character whose UTF-8 has 1, 2, 3 and 4 bytes.
constexpr uint32_t kLastOfSize[] = {0x7F, 0x7FF, 0xFFFF, kMaxChar};

int Utf8Size(uint32_t c) {
  return static_cast<int>(std::ranges::lower_bound(kLastOfSize, c) - kLastOfSize) + 1;
}

void EncodeChar(uint32_t c, int size, uint8_t* bytes) {
  constexpr uint8_t kLead[] = {0x00, 0xC0, 0xE0, 0xF0};
  for (int i = size - 1; i > 0; --i, c >>= 6) bytes[i] = static_cast<uint8_t>(0x80 | (c & 0x3F));
  bytes[0] = static_cast<uint8_t>(kLead[size - 1] | c);
}

}  // namespace

CharSet::CharSet(std::vector<CharRange> ranges) {
  std::vector<CharRange> parts;
  for (const CharRange& range : ranges) {
    const uint32_t last = std::min(range.last, kMaxChar);
    if (const uint32_t end = std::min(last, kSurrogates.first - 1); range.first <= end) {
      parts.push_back({range.first, end});
    }
    if (const uint32_t begin = std::max(range.first, kSurrogates.last + 1); begin <= last) {
      parts.push_back({begin, last});
    }
  }
  std::ranges::sort(parts, {}, &CharRange::first);
  for (const CharRange& part : parts) {
    if (!ranges_.empty() && part.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, part.last);
    } else {
      ranges_.push_back(part);
    }
  }
}

bool CharSet::Has(uint32_t c) const {
  const auto after = std::ranges::upper_bound(ranges_, c, {}, &CharRange::first);
  return after != ranges_.begin() && c <= std::prev(after)->last;
}

CharSet CharSet::Complement() const {
  std::vector<CharRange> gaps;
  uint32_t next = 0;
  for (const CharRange& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMaxChar) gaps.push_back({next, kMaxChar});
  return CharSet(std::move(gaps));
}

CharSet CharSet::Union(const CharSet& other) const {
  std::vector<CharRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(both));
}

CharSet CharSet::Intersection(const CharSet& other) const {
  return Complement().Union(other.Complement()).Complement();
}

std::vector<ByteRanges> Utf8Ranges(CharRange range) {
  std::vector<ByteRanges> out;
  // Cut where the number of bytes changes, then until each byte's range is free of those before it.
  std::vector<CharRange> rest = {range};
  while (!rest.empty()) {
    auto [first, last] = rest.back();
    rest.pop_back();
    const auto cut = [&](uint32_t end_of_first) {
      rest.push_back({end_of_first + 1, last});
      rest.push_back({first, end_of_first});
    };
    const int size = Utf8Size(first);
    if (const uint32_t end = kLastOfSize[size - 1]; last > end) {
      cut(end);
      continue;
    }
    bool is_whole = true;
    for (int i = 1; i < size && is_whole; ++i) {
      const uint32_t low = (1U << (6 * i)) - 1;  // what the last i bytes hold
      if ((first & ~low) == (last & ~low)) continue;
      if ((first & low) != 0) {
        cut(first | low);
        is_whole = false;
      } else if ((last & low) != low) {
        cut((last & ~low) - 1);
        is_whole = false;
      }
    }
    if (!is_whole) continue;
    ByteRanges bytes = {.size = size};
    EncodeChar(first, size, bytes.first);
    EncodeChar(last, size, bytes.last);
    out.push_back(bytes);
  }
  return out;
}

void AppendUtf8(uint32_t c, std::string& out) {
  uint8_t bytes[4];
  const int size = Utf8Size(c);
  EncodeChar(c, size, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

uint32_t TakeChar(std::string_view& text) {
  if (text.empty()) return kNoChar;
  const auto lead = static_cast<uint8_t>(text[0]);
  const int size = lead < 0x80   ? 1
                   : lead < 0xC2 ? 0
                   : lead < 0xE0 ? 2
                   : lead < 0xF0 ? 3
                   : lead < 0xF5 ? 4
                                 : 0;
  if (size == 0 || text.size() < static_cast<size_t>(size)) return kNoChar;
  uint32_t c = size == 1 ? lead : lead & (0x7FU >> size);
  for (int i = 1; i < size; ++i) {
    const auto byte = static_cast<uint8_t>(text[static_cast<size_t>(i)]);
    if ((byte & 0xC0) != 0x80) return kNoChar;
    c = (c << 6) | (byte & 0x3F);
  }
  if (c > kMaxChar || Utf8Size(c) != size) return kNoChar;
  if (c >= kSurrogates.first && c <= kSurrogates.last) return kNoChar;
  text.remove_prefix(static_cast<size_t>(size));
  return c;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    if (TakeChar(text) == kNoChar) return false;
  }
  return true;
}

}  // namespace inflight::grammar
