// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/stop_text.h"

#include <gtest/gtest.h>

namespace inflight::serving {
namespace {

// The answer made of chunks of a text.
std::string Cut(const std::vector<std::string>& words, const std::vector<std::string>& chunks,
                bool trims = false) {
  StopText stop(words, trims);
  std::string text;
  for (const std::string& chunk : chunks) text += stop.Feed(chunk);
  return text + stop.Finish();
}

// A text in three parts, in every way.
std::vector<std::vector<std::string>> Parts(const std::string& text) {
  std::vector<std::vector<std::string>> all;
  for (size_t i = 0; i <= text.size(); ++i)
    for (size_t j = i; j <= text.size(); ++j)
      all.push_back({text.substr(0, i), text.substr(i, j - i), text.substr(j)});
  return all;
}

TEST(StopText, EndsTheTextAfterTheWordHoweverItIsCut) {
  for (const auto& chunks : Parts("one stop two")) {
    const std::string where = testing::PrintToString(chunks);
    EXPECT_EQ(Cut({"stop"}, chunks), "one stop") << where;
    EXPECT_EQ(Cut({"stopper", "top", "p t"}, chunks), "one stop") << where;
  }
}

TEST(StopText, TrimsTheWordHoweverItIsCut) {
  for (const auto& chunks : Parts("one stop two")) {
    const std::string where = testing::PrintToString(chunks);
    EXPECT_EQ(Cut({"stop"}, chunks, /*trims=*/true), "one ") << where;
    EXPECT_EQ(Cut({"stopper", "top", "stop", "p t"}, chunks, true), "one ") << where;
    EXPECT_EQ(Cut({"e stopper", "nobody"}, chunks, true), "one stop two") << where;
  }
  for (const auto& chunks : Parts("aaab"))
    EXPECT_EQ(Cut({"aab"}, chunks, true), "a") << testing::PrintToString(chunks);
}

TEST(StopText, WhatMayBeginAWordIsHeldBack) {
  StopText stop({"stop", "tore"}, /*trims=*/true);
  EXPECT_EQ(stop.Feed("one s"), "one ");
  EXPECT_EQ(stop.Feed("t"), "");
  EXPECT_EQ(stop.Feed("or"), "s");
  EXPECT_EQ(stop.Feed("n sto"), "torn ");
  EXPECT_EQ(stop.Finish(), "sto");
  EXPECT_FALSE(stop.found());
}

TEST(StopText, SaysWhichWordItWas) {
  for (const auto& chunks : Parts("one stop two")) {
    StopText stop({"two", "nobody", "top", "stop"}, /*trims=*/true);
    EXPECT_EQ(stop.found_word(), "");
    for (const std::string& chunk : chunks) stop.Feed(chunk);
    EXPECT_EQ(stop.found_word(), "stop") << testing::PrintToString(chunks);  // the longer one
  }
}

TEST(StopText, NothingFollowsATrimmedWord) {
  StopText stop({"stop"}, /*trims=*/true);
  EXPECT_EQ(stop.Feed("a stop b"), "a ");
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.Feed("c"), "");
  EXPECT_EQ(stop.Finish(), "");
}

TEST(StopText, TheWordThatEndsFirstCounts) {
  EXPECT_EQ(Cut({"bcde", "c"}, {"abcdef"}), "abc");
  EXPECT_EQ(Cut({"f", "bcde"}, {"abcdef"}), "abcde");
  EXPECT_EQ(Cut({"bcde", "c"}, {"abcdef"}, /*trims=*/true), "ab");
  EXPECT_EQ(Cut({"e", "bcde"}, {"abc", "def"}, true), "a") << "of two that end together the longer";
}

TEST(StopText, AWordThatOnlyBeginsStopsNothing) {
  EXPECT_EQ(Cut({"aab"}, {"a", "a", "a", "c"}), "aaac");
  EXPECT_EQ(Cut({"aab"}, {"a", "a", "a", "b", "x"}), "aaab");
  EXPECT_EQ(Cut({"aab"}, {"a", "a", "a", "c", "a"}, /*trims=*/true), "aaaca");
}

TEST(StopText, AWordThatWasFedBeforeIsNotFoundAgain) {
  StopText stop({"long word", "x"});
  EXPECT_EQ(stop.Feed("abx"), "abx");
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.Feed("x"), "");
}

TEST(StopText, WithoutWordsNothingIsKept) {
  StopText stop(std::vector<std::string>{});
  EXPECT_EQ(stop.Feed("abc"), "abc");
  EXPECT_FALSE(stop.found());
}

}  // namespace
}  // namespace inflight::serving
