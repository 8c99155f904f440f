// SPDX-License-Identifier: Apache-2.0
// Which tokens bad texts ban: by hand, and of random ones against a search in the whole text.
#include "inflight/bad_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "decoding/bans.h"
#include "decoding/sampler.h"

namespace inflight::decoding {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Texts = std::vector<std::string>;
using Ids = std::vector<TokenId>;

Request RequestWith(const Texts& bad, const Texts& vocabulary) {
  Request request;
  auto made = MakeBadTexts(bad, MakeTokenTexts(vocabulary));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  request.bad_texts = *std::move(made);
  return request;
}

// The texts of the tokens that are banned behind `ids`.
Texts Banned(const Texts& bad, const Texts& vocabulary, const Ids& ids) {
  std::vector<float> row(vocabulary.size());
  Ban(MakeSamplingRule(RequestWith(bad, vocabulary), /*seed=*/0, /*num_prompt_tokens=*/1), ids,
      row);
  Texts banned;
  for (size_t id = 0; id < row.size(); ++id)
    if (row[id] == -std::numeric_limits<float>::infinity()) banned.push_back(vocabulary[id]);
  return banned;
}

const Texts kFood = {"f", "o", "oo", "foo", "food", " foo", "d", "", "ood", "xfoox", "fo"};

TEST(BadTexts, ATokenThatHasOneWholeIsAlwaysBanned) {
  EXPECT_THAT(Banned({"foo"}, kFood, {}), ElementsAre("foo", "food", " foo", "xfoox"));
  EXPECT_THAT(Banned({"foo"}, kFood, {6}), ElementsAre("foo", "food", " foo", "xfoox"));
}

TEST(BadTexts, ATokenThatBeginsWithTheRestIsBanned) {
  EXPECT_THAT(Banned({"foo"}, kFood, {0}),
              ElementsAre("oo", "foo", "food", " foo", "ood", "xfoox"));
  EXPECT_THAT(Banned({"foo"}, kFood, {0, 1}),
              ElementsAre("o", "oo", "foo", "food", " foo", "ood", "xfoox"));
  EXPECT_THAT(Banned({"foo"}, kFood, {10}),
              ElementsAre("o", "oo", "foo", "food", " foo", "ood", "xfoox"));
  EXPECT_THAT(Banned({"foo"}, kFood, {0, 6, 1}), ElementsAre("foo", "food", " foo", "xfoox"));
}

TEST(BadTexts, TokensWithoutTextStandInNoText) {
  EXPECT_THAT(Banned({"foo"}, kFood, {0, 7, 7, 1, 7, 7, 7}),
              ElementsAre("o", "oo", "foo", "food", " foo", "ood", "xfoox"));
  EXPECT_THAT(Banned({"foo"}, kFood, {0, 99, -1}), Banned({"foo"}, kFood, {0}));  // unknown ids
}

TEST(BadTexts, EveryTextThatEndsInTheTokenCounts) {
  const Texts vocabulary = {"a", "b", "c", "ab", "bc"};
  // One inside the other, one that is the end of the other, one that overlaps itself.
  EXPECT_THAT(Banned({"aabc", "b"}, vocabulary, {0, 0}), ElementsAre("b", "ab", "bc"));
  EXPECT_THAT(Banned({"aabc", "abb"}, vocabulary, {0, 0, 1}), ElementsAre("b", "c", "bc"));
  EXPECT_THAT(Banned({"aab"}, vocabulary, {0, 0, 0, 0}), ElementsAre("b", "ab", "bc"));
  EXPECT_THAT(Banned({"abab"}, vocabulary, {3, 0, 1}), ElementsAre("ab"));
  EXPECT_THAT(Banned({"abab"}, vocabulary, {3, 0}), ElementsAre("b", "bc"));
  EXPECT_THAT(Banned({"abab"}, vocabulary, {0, 0}), IsEmpty());
}

TEST(BadTexts, ACharacterMayBeCutBetweenTokens) {
  const Texts vocabulary = {"\xe2", "\x82\xac", "\x82", "\xac", "€", "x"};
  EXPECT_THAT(Banned({"€"}, vocabulary, {0}), ElementsAre("\x82\xac", "€"));
  EXPECT_THAT(Banned({"€"}, vocabulary, {0, 2}), ElementsAre("\xac", "€"));
  EXPECT_THAT(Banned({"€"}, vocabulary, {0, 5}), ElementsAre("€"));
}

TEST(BadTexts, EmptyTextsAndBytesOfAllValuesAreTaken) {
  EXPECT_THAT(Banned({"", ""}, kFood, {0}), IsEmpty());
  const std::string zero(1, '\0');
  EXPECT_THAT(Banned({"\xff" + zero}, {zero, "\xff", "\x7f"}, {1}), ElementsAre(zero));
}

TEST(BadTexts, EachPlaceOfALongTextIsFound) {
  const Texts vocabulary = {"ab", "c", "abab", "b"};
  const std::string text = "abababababababababababc";
  EXPECT_THAT(Banned({text}, vocabulary, Ids(11, 0)), ElementsAre("c"));
  EXPECT_THAT(Banned({text}, vocabulary, Ids(10, 0)), IsEmpty());
  EXPECT_THAT(Banned({text}, vocabulary, Ids(300, 0)), ElementsAre("c"));
}

TEST(BadTexts, BoundsAreNamed) {
  const auto tokens = MakeTokenTexts(kFood);
  EXPECT_EQ(MakeBadTexts(Texts(1025, "a"), tokens).status().message(),
            "got 1025 words, at most 1024 are allowed (send fewer)");
  EXPECT_EQ(MakeBadTexts(Texts(2, std::string(40000, 'a')), tokens).status().message(),
            "got words of 80000 bytes in all, at most 65536 are allowed (send fewer)");
  EXPECT_TRUE(MakeBadTexts(Texts(1024, std::string(64, 'a')), tokens).ok());
}

// Whether one of `bad` ends within the last `num_new` bytes of `text`.
bool EndsIn(const Texts& bad, const std::string& text, size_t num_new) {
  for (const std::string& word : bad) {
    if (word.empty()) continue;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
      if (at + word.size() > text.size() - num_new) return true;
  }
  return false;
}

TEST(BadTexts, RandomOnesAreFoundAsBySearchingTheText) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  const auto text_of = [&](size_t size) {
    std::string text;
    while (text.size() < size) text += "abc"[below(3)];
    return text;
  };
  int num_banned = 0;
  for (int round = 0; round < 300; ++round) {
    Texts vocabulary, bad;
    for (int i = 0; i < 40; ++i) vocabulary.push_back(text_of(below(6)));
    for (size_t i = 0; i < 1 + below(6); ++i) bad.push_back(text_of(1 + below(round % 2 ? 9 : 4)));
    std::string text;
    Ids ids;
    for (size_t i = 0; i < below(12); ++i) {
      ids.push_back(static_cast<TokenId>(below(vocabulary.size())));
      text += vocabulary[static_cast<size_t>(ids.back())];
    }
    Texts want;
    for (const std::string& token : vocabulary)
      if (EndsIn(bad, text + token, token.size())) want.push_back(token);
    ASSERT_EQ(Banned(bad, vocabulary, ids), want) << "round " << round << " behind " << text;
    num_banned += static_cast<int>(want.size());
  }
  EXPECT_GT(num_banned, 1000);
}

// Every token that is drawn, however hot, keeps the texts out of what they spell together.
TEST(BadTexts, NeverStandInWhatIsDrawn) {
  const Texts vocabulary = {"a", "b", "ab", "ba", "c", "", "abc"};
  const Texts bad = {"aba", "cc", "bb"};
  Request request = RequestWith(bad, vocabulary);
  const Ids prompt = {4};
  for (const float top_p : {0.0F, 1.0F}) {
    request.sampling = {.temperature = 50.0F, .top_p = top_p, .repetition_penalty = 1.01F};
    Sampler sampler(1, static_cast<int>(vocabulary.size()), 1);
    sampler.Setup(0, MakeSamplingRule(request, /*seed=*/3, 1), prompt, 600);
    Ids tokens = prompt;
    std::string text = vocabulary[4];
    for (int i = 0; i < 500; ++i) {
      std::vector<float> row = {3, 2, 2, 2, 2, -1, 1};
      tokens.push_back(sampler.Sample(0, tokens, row.data()).id);
      sampler.Append(0, tokens.back());
      text += vocabulary[static_cast<size_t>(tokens.back())];
    }
    for (const std::string& word : bad) EXPECT_EQ(text.find(word), std::string::npos) << text;
    EXPECT_GT(text.size(), 300U);
  }
}

}  // namespace
}  // namespace inflight::decoding
