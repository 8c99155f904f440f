// SPDX-License-Identifier: Apache-2.0
#include "inflight/guide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/budget.h"
#include "grammar/compiled_guide.h"
#include "grammar/guide_fixture.h"

namespace inflight::grammar {
namespace {

using testing::HasSubstr;
using Kind = GuideSpec::Kind;

TEST(GuideTest, ChoiceIsOneOfTheTexts) {
  const auto guide = GuideOf(Kind::kChoice, R"(["yes", "no", "not sure", "é\n"])",
                             BytesAnd({"yes", "no", "not", "nope", " sure", "y", "es!"}));
  for (const char* text : {"yes", "no", "not sure", "é\n"})
    EXPECT_TRUE(Matches(*guide, text)) << text;
  for (const char* text : {"", "y", "not", "not sur", "yess", "No", "é"})
    EXPECT_FALSE(Matches(*guide, text)) << text;
}

TEST(GuideTest, TextThatIsWholeMayGoOnWhereALongerOneIsAChoice) {
  const auto guide = GuideOf(Kind::kChoice, R"(["no", "not sure"])");
  const auto state = guide->Begin();
  ASSERT_TRUE(state->Accept('n'));
  EXPECT_FALSE(state->CanEnd());
  ASSERT_TRUE(state->Accept('o'));
  EXPECT_TRUE(state->CanEnd());
  EXPECT_TRUE(Has(MaskOf(*state, guide->num_tokens()), 't'));
}

TEST(GuideTest, MaskHasTheTokensAfterWhichTheTextCanBecomeWhole) {
  // Ids 257 on: the tokens by hand.
  const auto guide =
      GuideOf(Kind::kChoice, R"(["yes", "no"])", BytesAnd({"ye", "yes", "yes!", "o", ""}));
  const auto state = guide->Begin();
  const std::vector<uint32_t> mask = MaskOf(*state, guide->num_tokens());
  std::vector<TokenId> allowed;
  for (TokenId token = 0; token < guide->num_tokens(); ++token) {
    if (Has(mask, token)) allowed.push_back(token);
  }
  EXPECT_THAT(allowed, testing::ElementsAre('n', 'y', 257, 258));
}

TEST(GuideTest, TokenThatMayNotComeChangesNothing) {
  const auto guide = GuideOf(Kind::kRegex, "ab", BytesAnd({"ac"}));
  const auto state = guide->Begin();
  EXPECT_FALSE(state->Accept(257));
  EXPECT_FALSE(state->Accept(256));
  EXPECT_FALSE(state->Accept(-1));
  EXPECT_FALSE(state->Accept(guide->num_tokens()));
  EXPECT_TRUE(state->Accept('a'));
  EXPECT_TRUE(state->Accept('b'));
  EXPECT_TRUE(state->CanEnd());
  EXPECT_FALSE(state->Accept('b'));
}

TEST(GuideTest, CloneGoesItsOwnWay) {
  const auto guide = GuideOf(Kind::kRegex, "a(b|c)d");
  const auto one = guide->Begin();
  ASSERT_TRUE(one->Accept('a'));
  const auto other = one->Clone();
  ASSERT_TRUE(one->Accept('b'));
  ASSERT_TRUE(other->Accept('c'));
  ASSERT_TRUE(one->Accept('d'));
  EXPECT_TRUE(one->CanEnd());
  EXPECT_FALSE(other->CanEnd());
}

TEST(GuideTest, TextBeforeTheTagIsFree) {
  auto made = MakeGuide({.kind = Kind::kRegex, .text = "[0-9]+", .begins_after = "</a></b>"},
                        BytesAnd({"</a>", "</b>", "b>1", "b>x", "</a></"}));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const Guide& guide = **made;
  EXPECT_TRUE(Matches(guide, "</a></b>12"));
  EXPECT_TRUE(Matches(guide, "so\n</a> </b></a></a></b>1"));
  EXPECT_FALSE(Matches(guide, "12"));
  EXPECT_FALSE(Matches(guide, "</a></b>"));
  EXPECT_FALSE(Matches(guide, "</a></b>1</a></b>1"));
}

TEST(GuideTest, WordsOfManyTokensAreAllInTheMask) {
  std::vector<std::string> words;
  for (int i = 0; i < 3000; ++i) words.push_back("w" + std::to_string(i));
  const auto guide = GuideOf(Kind::kRegex, "(w[0-9]*[02468])+", BytesAnd(words));
  const auto state = guide->Begin();
  for (const char byte : std::string("w12")) {
    CheckMask(*state, guide->num_tokens());
    ASSERT_TRUE(state->Accept(byte));
  }
  CheckMask(*state, guide->num_tokens());
}

TEST(GuideTest, EmptyChoicesAreRefused) {
  EXPECT_THAT(RefusalOf(Kind::kChoice, "[]"), HasSubstr("no text to choose"));
  EXPECT_THAT(RefusalOf(Kind::kChoice, "[1]"), HasSubstr("array of the texts"));
  EXPECT_THAT(RefusalOf(Kind::kChoice, "{}"), HasSubstr("array of the texts"));
  EXPECT_THAT(RefusalOf(Kind::kChoice, "["), HasSubstr("INVALID_ARGUMENT"));
}

TEST(GuideTest, RegexMatchesWhole) {
  struct Case {
    const char* pattern;
    std::vector<std::string> matches;
    std::vector<std::string> others;
  };
  const std::vector<Case> cases = {
      {"a|bc", {"a", "bc"}, {"", "abc", "b"}},
      {"^a.c$", {"abc", "aéc", "a😀c"}, {"a\nc", "ac", "abbc"}},
      {"(ab){2,3}", {"abab", "ababab"}, {"ab", "abababab"}},
      {"a{2}b{0,1}c{1,}", {"aac", "aabccc"}, {"aab", "abc"}},
      {"(?:x+?y*?)?", {"", "x", "xxy"}, {"y"}},
      {R"(\d{4}-[01]\d)", {"2024-12"}, {"2024-22", "202-12"}},
      {R"([^\w\s]+)", {"!?", "é"}, {"a", "! "}},
      {R"([a\-\]z-]+)", {"a-]z"}, {"b"}},
      {R"(\u00e9\x41\n\.\/)", {"\u00e9A\n./"}, {"eA\n./"}},
      {R"(\ud83d\ude00)", {"😀"}, {""}},
      {"a{x}", {"a{x}"}, {"ax"}},
      {"(?<year>[0-9]+)(?P<unit>y)", {"12y"}, {"y"}},
      {"(a*)*b", {"b", "aab"}, {"a"}},
      {"(?:(a|a|[ab])(b|b))*", {"", "ab", "abbbab"}, {"a", "aa"}},
      {"", {""}, {"a"}},
      {"[à-ü]", {"é"}, {"e", "\xC3"}},
  };
  for (const Case& one : cases) {
    const auto guide = GuideOf(Kind::kRegex, one.pattern);
    ASSERT_NE(guide, nullptr) << one.pattern;
    for (const auto& text : one.matches)
      EXPECT_TRUE(Matches(*guide, text)) << one.pattern << " " << text;
    for (const auto& text : one.others)
      EXPECT_FALSE(Matches(*guide, text)) << one.pattern << " " << text;
  }
}

TEST(GuideTest, RegexThatIsNotSupportedIsRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"a(?=b)", "looking ahead"},
      {"(?<!a)b", "looking behind"},
      {"(a)\\1", "reference to a group"},
      {"\\bword", "ends of words"},
      {"(?i)a", "flags"},
      {"a*+", "possessive"},
      {"\\p{L}", "properties"},
      {"(a", "not closed by )"},
      {"a)", "closes no group"},
      {"[a", "not closed by ]"},
      {"[]", "empty"},
      {"*a", "nothing to repeat"},
      {"a**", "behind another"},
      {"a{3,2}", "m above n"},
      {"[z-a]", "reversed"},
      {"(^a)", "ends of alternatives"},
      {"a$b", "at the end only"},
      {"\xFF", "no UTF-8"},
      {"[\\d-z]", "both sides"},
      {"\\ud800", "surrogate"},
      {"\\u{dfff}", "surrogate"},
      {"[^\\d\\D]", "no text matches"},
  };
  for (const auto& [pattern, words] : cases) {
    EXPECT_THAT(RefusalOf(Kind::kRegex, pattern), HasSubstr(words)) << pattern;
  }
}

TEST(GuideTest, RegexOfUnboundedCostIsRefused) {
  // With a budget that takes no second to spend: tests/grammar/test_hostile.py has the whole one.
  for (const char* pattern : {"(a|b)*a(a|b){40}", "((((a{1000}){1000}){1000}){1000}){1000}"}) {
    const auto made =
        CompileGuide({.kind = Kind::kRegex, .text = pattern}, BytesAnd(), Budget(200'000));
    EXPECT_EQ(made.status().code(), StatusCode::kResourceExhausted) << pattern;
  }
  EXPECT_THAT(RefusalOf(Kind::kRegex, "a{9999999}"), HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_THAT(RefusalOf(Kind::kRegex, std::string(100000, '(')), HasSubstr("nest deeper"));
  EXPECT_THAT(RefusalOf(Kind::kRegex, std::string(size_t{2} << 20, 'a')),
              HasSubstr("RESOURCE_EXHAUSTED"));
}

TEST(GuideTest, JsonIsAnyObject) {
  const auto guide =
      GuideOf(Kind::kJson, "",
              BytesAnd({"{\"", "\": ", "\",", "\"}", "}}", " \"", "\\u", "true}", "]}", "1}"}));
  for (const char* text :
       {"{}", R"({"a": 1})", R"({"a":{"b":[1,-2.5e+3,true,null,"\u00e9\ud83d\ude00 é"]}})",
        "{\n  \"a\": [\n    []\n  ]\n}"}) {
    EXPECT_TRUE(Matches(*guide, text)) << text;
  }
  for (const char* text :
       {"", "[]", "1", "{", R"({"a" 1})", R"({"a":01})", R"({"a":1,})", R"({"a":"\x"})",
        R"({"a":"\ud83d"})", "{\"a\":\"\n\"}", "{  }", "{\"a\":\"\xFF\"}", R"({"a":1e999})"}) {
    EXPECT_FALSE(Matches(*guide, text)) << text;
  }
}

TEST(GuideTest, JsonNestsToABoundAndEndsThere) {
  const auto guide = GuideOf(Kind::kJson, "", BytesAnd({"{\"a\":", "[[[["}));
  const auto state = guide->Begin();
  int depth = 0;
  while (state->Accept(257)) ASSERT_LT(++depth, 10000);
  EXPECT_GT(depth, 200);
  CheckMask(*state, guide->num_tokens());
  ASSERT_TRUE(state->Accept('1'));
  for (; depth > 0; --depth) {
    ASSERT_FALSE(state->CanEnd());
    ASSERT_TRUE(state->Accept('}')) << depth;
  }
  EXPECT_TRUE(state->CanEnd());
}

TEST(GuideTest, GrammarIsReadByItsRules) {
  const auto guide = GuideOf(Kind::kGrammar, R"gbnf(# sums
root ::= sum
sum  ::= product ("+" product)*   # of products
product ::=
  value
  | product "*" value
value ::= [0-9]+ | "(" sum ")" | "\x41\"" | 'it' [^a-z\]] .{1,2}
)gbnf");
  for (const char* text : {"1", "1+2*3", "((1)+22)*4", "A\"", "itBxy", "it1😀"})
    EXPECT_TRUE(Matches(*guide, text)) << text;
  for (const char* text : {"", "1+", "(1", "1**2", "A", "ita1", "it]1", "it1"})
    EXPECT_FALSE(Matches(*guide, text)) << text;
}

TEST(GuideTest, BackslashBeforeWhatIsNoLetterOrDigitIsThatCharacter) {
  const auto guide = GuideOf(Kind::kGrammar, R"gbnf(root ::= [0-9\-\_]+ "\-\_\/")gbnf");
  ASSERT_NE(guide, nullptr);
  EXPECT_TRUE(Matches(*guide, "1-_-_/"));
  EXPECT_FALSE(Matches(*guide, "1\\-_/"));
}

TEST(GuideTest, GrammarOfBalancedBracketsCounts) {
  const auto guide = GuideOf(Kind::kGrammar, R"gbnf(root ::= ("a" root "b")?)gbnf",
                             BytesAnd({"aa", "bbb", "ab", "aab"}));
  for (const char* text : {"", "ab", "aaabbb"}) EXPECT_TRUE(Matches(*guide, text)) << text;
  for (const char* text : {"a", "aab", "abb", "ba"}) EXPECT_FALSE(Matches(*guide, text)) << text;
}

TEST(GuideTest, AmbiguousGrammarKeepsAllWays) {
  const auto guide = GuideOf(
      Kind::kGrammar, "root ::= x | y\nx ::= \"a\" x \"b\" | \"ab\"\ny ::= \"a\" y \"c\" | \"ac\"");
  EXPECT_TRUE(Matches(*guide, "aaabbb"));
  EXPECT_TRUE(Matches(*guide, "aaaccc"));
  EXPECT_FALSE(Matches(*guide, "aaabbc"));
}

TEST(GuideTest, GrammarThatIsWrongIsRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"root ::= a", "rule a is not defined"},
      {"a ::= \"x\"", "rule root is not defined"},
      {"root ::= \"x\"\nroot ::= \"y\"", "line 2: rule root is defined twice"},
      {"root ::= root", "no text matches"},
      {"root ::= \"a\" root", "no text matches"},
      {"root ::= a \"x\" | \"y\"\na ::= root", "begins with itself"},
      {"root ::= b root \"x\" | \"y\"\nb ::= \"z\"?", "begins with itself"},
      {"root ::= \"x", "not closed"},
      {"root ::= (\"x\"", "not closed"},
      {"root ::= \"x\")", "not expected"},
      {"root \"x\"", "a rule is expected"},
      {"root ::= [z-a]", "reversed"},
      {"root ::= \"\\q\"", "escape \\q"},
      {"root ::= \"\\ud800\"", "surrogate"},
      {"root ::= [\\u{d800}]", "surrogate"},
      {"root ::= <think>", "tokens"},
      {"root ::= \"a\"{2,1}", "repetition"},
      {"", "rule root is not defined"},
  };
  for (const auto& [text, words] : cases) {
    EXPECT_THAT(RefusalOf(Kind::kGrammar, text), HasSubstr(words)) << text;
  }
}

}  // namespace
}  // namespace inflight::grammar
