// SPDX-License-Identifier: Apache-2.0
// The sequences are those of the Unicode Standard 16.0, tables 3-8 to 3-11 ("U+FFFD Substitution of
// Maximal Subparts").
#include "json/valid_text.h"

#include <gtest/gtest.h>

#include <string>

namespace inflight::json {
namespace {

std::string Replaced(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "\xEF\xBF\xBD";
  return text;
}

TEST(ValidTextTest, Utf8StaysAsItIs) {
  const std::string text = "a\x7F\u00E9\u20AC\uFFFF\U0001F600\U0010FFFF";
  EXPECT_EQ(ValidText(text), text);
  EXPECT_EQ(ValidText(std::string_view("a\0b", 3)), std::string("a\0b", 3));
  EXPECT_EQ(ValidText(""), "");
}

TEST(ValidTextTest, WhatIsNoneBecomesReplacementCharacters) {
  EXPECT_EQ(ValidText("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), Replaced(8) + "A");  // too long
  EXPECT_EQ(ValidText("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), Replaced(8) + "A");  // surrogates
  EXPECT_EQ(ValidText("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            Replaced(5) + "A" + Replaced(2) + "B");
  EXPECT_EQ(ValidText("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), Replaced(4) + "A");  // cut short
  EXPECT_EQ(ValidText("\xE1\x80"), Replaced(1));
}

}  // namespace
}  // namespace inflight::json
