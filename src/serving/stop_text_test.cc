// SPDX-License-Identifier: Apache-2.0
#include "serving/stop_text.h"

#include <gtest/gtest.h>

namespace inflight::serving {
namespace {

// What is left of chunks of a text.
std::string Cut(const std::vector<std::string>& words, const std::vector<std::string>& chunks) {
  StopText stop(words);
  std::string text;
  for (const std::string& chunk : chunks) text += chunk.substr(0, stop.Feed(chunk));
  return text;
}

TEST(StopText, EndsTheTextAfterTheWordHoweverItIsCut) {
  const std::string text = "one stop two";
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); ++j) {
      const std::vector<std::string> chunks = {text.substr(0, i), text.substr(i, j - i),
                                               text.substr(j)};
      EXPECT_EQ(Cut({"stop"}, chunks), "one stop") << i << ", " << j;
      EXPECT_EQ(Cut({"stopper", "top", "p t"}, chunks), "one stop") << i << ", " << j;
    }
  }
}

TEST(StopText, TheWordThatEndsFirstCounts) {
  EXPECT_EQ(Cut({"bcde", "c"}, {"abcdef"}), "abc");
  EXPECT_EQ(Cut({"f", "bcde"}, {"abcdef"}), "abcde");
}

TEST(StopText, AWordThatOnlyBeginsStopsNothing) {
  EXPECT_EQ(Cut({"aab"}, {"a", "a", "a", "c"}), "aaac");
  EXPECT_EQ(Cut({"aab"}, {"a", "a", "a", "b", "x"}), "aaab");
}

TEST(StopText, AWordThatWasFedBeforeIsNotFoundAgain) {
  StopText stop({"long word", "x"});
  EXPECT_EQ(stop.Feed("abx"), 3U);
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.Feed("x"), 0U);
}

TEST(StopText, WithoutWordsNothingIsKept) {
  StopText stop({});
  EXPECT_EQ(stop.Feed("abc"), 3U);
  EXPECT_FALSE(stop.found());
}

}  // namespace
}  // namespace inflight::serving
