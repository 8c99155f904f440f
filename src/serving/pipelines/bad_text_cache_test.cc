// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/bad_text_cache.h"

#include <gtest/gtest.h>

#include "serving/testing/fake_executor.h"

namespace inflight::serving {
namespace {

using Texts = std::vector<std::string>;

class BadTextCacheTest : public ::testing::Test {
 protected:
  std::shared_ptr<const BadTexts> Get(const Texts& texts) {
    auto made = cache_.Get(texts);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return *std::move(made);
  }

  BadTextCache cache_{*Tokenizer::FromJson(ByteTokenizerJson())};
};

TEST_F(BadTextCacheTest, EmptyTextsAreNone) {
  EXPECT_EQ(Get({}), nullptr);
  EXPECT_EQ(Get({"", ""}), nullptr);
}

TEST_F(BadTextCacheTest, TheSameTextsAreMadeOnce) {
  const auto made = Get({"ab", "c"});
  EXPECT_EQ(Get({"ab", "c"}), made);
  EXPECT_NE(Get({"c", "ab"}), made);
  EXPECT_NE(Get({"abc"}), made);
  EXPECT_EQ(Get({"abc"})->tokens, made->tokens);
}

TEST_F(BadTextCacheTest, TheLongestUnusedIsForgotten) {
  const std::weak_ptr<const BadTexts> used = Get({"used"});
  const std::weak_ptr<const BadTexts> unused = Get({"unused"});
  for (int i = 0; i < 15; ++i) {
    Get({std::to_string(i)});
    Get({"used"});
  }
  EXPECT_FALSE(used.expired());
  EXPECT_TRUE(unused.expired());
}

TEST_F(BadTextCacheTest, BoundsAreThoseOfBadTexts) {
  const auto made = cache_.Get(Texts(1025, "a"));
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace inflight::serving
