// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/split_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tokenizer/pcre2_pattern.h"
#include "tokenizer/published_patterns.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The matches of `pattern` in `text`; what lies between them in brackets.
std::vector<std::string> Split(const SplitPattern& pattern, std::string_view text) {
  std::vector<Span> spans;
  EXPECT_TRUE(pattern.FindAll(text, spans).ok());
  std::vector<std::string> parts;
  uint32_t covered = 0;
  for (const Span& s : spans) {
    EXPECT_EQ(s.begin, covered);
    covered = s.end;
    const auto part = std::string(text.substr(s.begin, s.end - s.begin));
    parts.push_back(s.is_match ? part : "[" + part + "]");
  }
  EXPECT_EQ(covered, text.size());
  return parts;
}

std::vector<std::string> SplitBy(std::string_view regex, std::string_view text) {
  const auto pattern = SplitPattern::Regex(regex);
  EXPECT_TRUE(pattern.ok()) << pattern.status().ToString();
  return Split(**pattern, text);
}

TEST(SplitPattern, Gpt2SplitsWordsWithTheBlankBefore) {
  EXPECT_THAT(SplitBy(kGpt2, "It's  12 o'clock!?\n x"),
              ElementsAre("It", "'s", " ", " 12", " o", "'", "clock", "!?", "\n", " x"));
  EXPECT_THAT(SplitBy(kGpt2, "a   "), ElementsAre("a", "   "));
  EXPECT_THAT(SplitBy(kGpt2, "we'll WE'LL"), ElementsAre("we", "'ll", " WE", "'", "LL"));
}

TEST(SplitPattern, Llama3SplitsDigitsByThreeAndKeepsLineEndsWithSymbols) {
  EXPECT_THAT(SplitBy(kLlama3, "1234567 (foo)!\r\n\n  bar"),
              ElementsAre("123", "456", "7", " (", "foo", ")!\r\n\n", " ", " bar"));
  EXPECT_THAT(SplitBy(kLlama3, "WE'LL\tx \n \n y"),
              ElementsAre("WE", "'LL", "\tx", " \n \n", " y"));
  EXPECT_THAT(SplitBy(kLlama3, "x'\u017F"), ElementsAre("x", "'\u017F"));
}

TEST(SplitPattern, Cl100kKeepsTheLastBlanksTogether) {
  EXPECT_THAT(SplitBy(kCl100kPattern, "a\n  b\n  "), ElementsAre("a", "\n", " ", " b", "\n  "));
  EXPECT_THAT(SplitBy(kLlama3, "a\n  b\n  "), ElementsAre("a", "\n", " ", " b", "\n", "  "));
}

TEST(SplitPattern, ScannersAgreeWithTheRegexOnRandomText) {
  const std::string_view characters[] = {
      " ", " ", "\n", "\r", "\t", "'",  "s",      "L",      "l",      "re",     "D", "1",
      "٣", "é", "日", "!",  "-",  "👍", "\u0301", "\u00A0", "\u3000", "\u017F", "½"};
  std::mt19937 random(1);
  for (const std::string_view pattern : {kGpt2, kLlama3, kQwen2Pattern, kCl100kPattern}) {
    const auto scanner = SplitPattern::Regex(pattern);
    const auto translated = TranslateRegex(pattern);
    ASSERT_TRUE(scanner.ok() && translated.ok());
    const auto regex = CompilePcre2(*translated);
    ASSERT_TRUE(regex.ok()) << regex.status().ToString();
    for (int i = 0; i < 2000; ++i) {
      std::string text;
      for (int n = 1 + static_cast<int>(random() % 12); n > 0; --n) {
        text += characters[random() % std::size(characters)];
      }
      ASSERT_EQ(Split(**scanner, text), Split(**regex, text)) << text;
    }
  }
}

TEST(SplitPattern, EmptyMatchesSplitButDoNotRepeat) {
  EXPECT_THAT(SplitBy("a*", "baab"), ElementsAre("", "[b]", "aa", "[b]", ""));
}

TEST(SplitPattern, LiteralsMatchWithoutOverlap) {
  EXPECT_THAT(Split(*SplitPattern::Literal("aa"), "aaab"), ElementsAre("aa", "[ab]"));
}

TEST(SplitPattern, BlanksAndWordsFollowOnigurumaNotPcre2) {
  EXPECT_THAT(SplitBy(R"(\s+)", "a\u180Eb\u0085c"), ElementsAre("[a\u180Eb]", "\u0085", "[c]"));
  EXPECT_THAT(SplitBy(R"(\w+)", "e\u0301_\u203F-"), ElementsAre("e\u0301_\u203F", "[-]"));
  EXPECT_THAT(SplitBy(R"([^\s\w]+)", "a-\u00A0"), ElementsAre("[a]", "-", "[\u00A0]"));
}

TEST(SplitPattern, ConstructsThatReadDifferentlyAreRefusedByName) {
  for (const std::string_view pattern :
       {R"(\h+)", R"([a[b]])", R"([a&&b])", "(?m)a", "(?<n>a)", "a{,3}", "a{2}+", R"(\bx)"}) {
    const auto result = SplitPattern::Regex(pattern);
    ASSERT_FALSE(result.ok()) << pattern;
    EXPECT_EQ(result.status().code(), StatusCode::kUnimplemented) << pattern;
  }
  EXPECT_THAT(SplitPattern::Regex(R"(\h+)").status().message(), HasSubstr("\\h"));
  EXPECT_EQ(SplitPattern::Regex("(a").status().code(), StatusCode::kInvalidArgument);
}

TEST(SplitPattern, RunawayBacktrackingIsAnErrorNotAHang) {
  const auto pattern = SplitPattern::Regex("(?:a+)+[bc]");
  ASSERT_TRUE(pattern.ok());
  std::vector<Span> spans;
  EXPECT_EQ((*pattern)->FindAll(std::string(64, 'a'), spans).code(),
            StatusCode::kResourceExhausted);
}

TEST(Unicode, ClassifiesBytesAsUnicodeTable3_7) {
  const auto kind = [](std::string_view bytes) { return ClassifyUtf8(bytes).kind; };
  EXPECT_EQ(kind("\xF0\x9F\x91\x8D"), Utf8Prefix::kCharacter);
  EXPECT_EQ(kind("\xF0\x9F\x91"), Utf8Prefix::kIncomplete);
  EXPECT_EQ(kind("\xED\xA0\x80"), Utf8Prefix::kInvalid);  // a surrogate
  EXPECT_EQ(kind("\xC0\x80"), Utf8Prefix::kInvalid);      // overlong
  EXPECT_EQ(kind("\xF4\x90\x80\x80"), Utf8Prefix::kInvalid);
  EXPECT_EQ(ClassifyUtf8("\xF0\x9Fx").size, 2u);
  EXPECT_EQ(FindInvalidUtf8("12345678é\xFF"), 10u);
}

TEST(Unicode, ByteAlphabetIsThatOfGpt2) {
  const ByteAlphabet& alphabet = ByteAlphabet::Get();
  EXPECT_EQ(alphabet.Symbol(' '), "Ġ");
  EXPECT_EQ(alphabet.Symbol('\n'), "Ċ");
  EXPECT_EQ(alphabet.Symbol(0xAD), "\u0143");
  EXPECT_EQ(alphabet.ToBytes("ĠÃ©"), " é");
  EXPECT_EQ(alphabet.ToBytes("a b"), std::nullopt);
}

}  // namespace
}  // namespace inflight::tokenizer
