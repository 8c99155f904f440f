// SPDX-License-Identifier: Apache-2.0
#include "contract/word_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inflight::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WordList, EncodesWordsAsIdsAndInclusiveEnds) {
  EXPECT_THAT(EncodeWordList({{5, 7, 3}, {9, 2}}), ElementsAre(5, 7, 3, 9, 2, 3, 5, -1, -1, -1));
  EXPECT_THAT(EncodeWordList({{42}}), ElementsAre(42, 1));
  EXPECT_THAT(EncodeWordList({{1}, {}, {2, 3}}), ElementsAre(1, 2, 3, 1, 3, -1));
}

TEST(WordList, NoWordsAreOneZeroAndOneMinusOne) {
  EXPECT_THAT(EncodeWordList({}), ElementsAre(0, -1));
}

TEST(WordList, OfABatchIsAsWideAsTheWidest) {
  EXPECT_THAT(EncodeWordList({{1}, {2, 3}}, 3), ElementsAre(1, 2, 3, 1, 3, -1));
  EXPECT_THAT(EncodeWordList({{4}}, 3), ElementsAre(4, 0, 0, 1, -1, -1));
  EXPECT_THAT(EncodeWordList({}, 3), ElementsAre(0, 0, 0, -1, -1, -1));
}

TEST(WordList, DecodesTheInverse) {
  const Words words = {{5, 7, 3}, {9, 2}};
  const auto decoded = DecodeWordList(EncodeWordList(words));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(*decoded, words);
  EXPECT_TRUE(DecodeWordList({})->empty());
  EXPECT_TRUE(DecodeWordList(EncodeWordList({}))->empty());
}

TEST(WordList, DecodesTheUnitVectorOfTheOldBackend) {
  const std::vector<int32_t> list = {1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 4, 9, -1, -1, -1, -1, -1, -1};
  const auto words = DecodeWordList(list);
  ASSERT_TRUE(words.ok());
  EXPECT_THAT(*words,
              ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4), ElementsAre(5, 6, 7, 8, 9)));
}

struct BadList {
  std::vector<int32_t> list;
  const char* message;
};

class WordListErrors : public ::testing::TestWithParam<BadList> {};

TEST_P(WordListErrors, NameWhatIsWrongAndPrintTheList) {
  const auto words = DecodeWordList(GetParam().list);
  ASSERT_FALSE(words.ok());
  EXPECT_EQ(words.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(words.status().message(), HasSubstr("Sparse list must not have"));
  EXPECT_THAT(words.status().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(All, WordListErrors,
                         ::testing::Values(BadList{{1, 2, 3}, "odd length, got 3: [1, 2, 3]"},
                                           BadList{{1, 2, 3, 3, -1, 2}, "after the first -1"},
                                           BadList{{1, 2, 3, 4, -1, -1},
                                                   "out-of-bound offsets, got 4 for 3 ids"},
                                           BadList{{1, 2, 3, 2, 2, -1}, "non-increasing offsets"},
                                           BadList{{1, 2, 3, 0, -1, -1}, "non-increasing offsets"},
                                           BadList{{1, -2147483647 - 1}, "after the first -1"}));

TEST(WordList, LongListsArePrintedInPart) {
  const std::vector<int32_t> list(1001, 7);
  EXPECT_LT(DecodeWordList(list).status().message().size(), 400U);
}

}  // namespace
}  // namespace inflight::contract
