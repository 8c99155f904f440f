// SPDX-License-Identifier: Apache-2.0
#include "grammar/char_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace inflight::grammar {
namespace {

using testing::ElementsAre;

TEST(CharSetTest, RangesAreSortedAndJoined) {
  const CharSet set({{'x', 'z'}, {'a', 'c'}, {'d', 'd'}, {'b', 'b'}});
  EXPECT_THAT(set.ranges(), ElementsAre(CharRange{'a', 'd'}, CharRange{'x', 'z'}));
  EXPECT_TRUE(set.Has('d'));
  EXPECT_FALSE(set.Has('e'));
}

TEST(CharSetTest, SurrogatesAreNoCharacters) {
  EXPECT_THAT(CharSet::Any().ranges(),
              ElementsAre(CharRange{0, 0xD7FF}, CharRange{0xE000, 0x10FFFF}));
  EXPECT_TRUE(CharSet::Any().Complement().empty());
  EXPECT_TRUE(CharSet({{0xD800, 0xDFFF}}).empty());
}

TEST(CharSetTest, SetsCombine) {
  const CharSet digits({{'0', '9'}});
  const CharSet some({{'5', 'a'}});
  EXPECT_THAT(digits.Intersection(some).ranges(), ElementsAre(CharRange{'5', '9'}));
  EXPECT_THAT(digits.Union(some).ranges(), ElementsAre(CharRange{'0', 'a'}));
  EXPECT_FALSE(digits.Complement().Has('3'));
  EXPECT_TRUE(digits.Complement().Has(0x10FFFF));
}

// Every character by itself, against the encoding that RFC 3629 gives.
TEST(CharSetTest, RangesOfBytesAreTheUtf8OfTheirCharacters) {
  for (const CharRange range :
       {CharRange{0, 0xD7FF}, CharRange{0xE000, 0x10FFFF}, CharRange{0x7E, 0x801},
        CharRange{0xFFF0, 0x10010}, CharRange{0x3042, 0x3042}}) {
    uint64_t num_chars = 0;
    for (const ByteRanges& bytes : Utf8Ranges(range)) {
      uint64_t product = 1;
      std::string first;
      std::string last;
      for (int i = 0; i < bytes.size; ++i) {
        ASSERT_LE(bytes.first[i], bytes.last[i]);
        product *= bytes.last[i] - bytes.first[i] + 1U;
        first += static_cast<char>(bytes.first[i]);
        last += static_cast<char>(bytes.last[i]);
      }
      std::string_view rest = first;
      const uint32_t low = TakeChar(rest);
      rest = last;
      const uint32_t high = TakeChar(rest);
      ASSERT_GE(low, range.first);
      ASSERT_LE(high, range.last);
      ASSERT_EQ(product, high - low + 1U);  // none between is left out, and none is twice
      num_chars += product;
    }
    EXPECT_EQ(num_chars, range.last - range.first + 1U);
  }
}

TEST(CharSetTest, BadUtf8IsNoCharacter) {
  for (const char* text :
       {"\x80", "\xC3", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF"}) {
    std::string_view rest = text;
    EXPECT_EQ(TakeChar(rest), kNoChar);
    EXPECT_EQ(rest, text);
    EXPECT_FALSE(IsUtf8(text));
  }
  std::string text;
  AppendUtf8(0x1F600, text);
  EXPECT_EQ(text, "\xF0\x9F\x98\x80");
  EXPECT_TRUE(IsUtf8(text));
}

}  // namespace
}  // namespace inflight::grammar
