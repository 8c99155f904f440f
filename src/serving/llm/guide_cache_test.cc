// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/guide_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "serving/testing/fake_executor.h"

namespace inflight::serving {
namespace {

constexpr int kMany = 100000;  // more than the tokenizer has
constexpr uint64_t kGuideBytes = uint64_t{80} << 20;

std::atomic<uint64_t> grown_bytes = 0;  // of the guide whose text is `grows`
std::atomic<int> num_looks = 0;         // at the bytes of any

// Of so many bytes, or of few where its text begins with `small`; `refuse` is none.
class FakeGuide final : public Guide {
 public:
  FakeGuide(int num_tokens, const std::string& text)
      : num_tokens_(num_tokens),
        bytes_(text.starts_with("small") ? 1 : kGuideBytes),
        grows_(text == "grows") {}
  std::unique_ptr<GuideState> Begin() const override { return nullptr; }
  int num_tokens() const override { return num_tokens_; }
  uint64_t bytes() const override {
    ++num_looks;
    return bytes_ + (grows_ ? grown_bytes.load() : 0);
  }

 private:
  const int num_tokens_;
  const uint64_t bytes_;
  const bool grows_;
};

std::atomic<int> num_made = 0;
std::shared_ptr<const TokenTexts> last_tokens;

Result<std::shared_ptr<const Guide>> Make(const GuideSpec& spec,
                                          std::shared_ptr<const TokenTexts> tokens) {
  ++num_made;
  if (spec.text == "refuse") return Status(StatusCode::kResourceExhausted, "too large");
  last_tokens = std::move(tokens);
  return std::shared_ptr<const Guide>(
      std::make_shared<FakeGuide>(last_tokens->num_tokens(), spec.text));
}

constexpr int kAskers = 4;
std::atomic<int> num_asking = 0;

Result<std::shared_ptr<const Guide>> MakeWhenAllAsk(const GuideSpec& spec,
                                                    std::shared_ptr<const TokenTexts> tokens) {
  while (num_asking < kAskers) std::this_thread::yield();
  return Make(spec, std::move(tokens));
}

GuideSpec Regex(std::string text) {
  return {.kind = GuideSpec::Kind::kRegex, .text = std::move(text)};
}

class GuideCacheTest : public ::testing::Test {
 protected:
  GuideCacheTest() {
    num_made = 0;
    grown_bytes = 0;
  }

  std::shared_ptr<const Guide> Get(const GuideSpec& spec, std::vector<TokenId> shown = {},
                                   const std::shared_ptr<AccountShare>& memory = nullptr) {
    auto made = cache_.Get(spec, {.num_tokens = kMany, .shown = std::move(shown)}, memory);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return made.ok() ? *std::move(made) : nullptr;
  }

  std::shared_ptr<const Tokenizer> tokenizer_ = *Tokenizer::FromJson(ByteTokenizerJson());
  GuideCache cache_{tokenizer_, &Make};
};

TEST_F(GuideCacheTest, TheSameGuideIsMadeOnce) {
  EXPECT_FALSE(cache_.Has(Regex("a"), {.num_tokens = kMany}));
  const auto made = Get(Regex("a"));
  EXPECT_TRUE(cache_.Has(Regex("a"), {.num_tokens = kMany}));
  EXPECT_EQ(Get(Regex("a")), made);
  EXPECT_EQ(num_made, 1);
  EXPECT_NE(Get(Regex("b")), made);
  GuideSpec later = Regex("a");
  later.begins_after = "</think>";
  EXPECT_NE(Get(later), made);
  later.kind = GuideSpec::Kind::kGrammar;
  EXPECT_FALSE(cache_.Has(later, {.num_tokens = kMany}));
  EXPECT_EQ(num_made, 3);
}

TEST_F(GuideCacheTest, AGuideThatManyAskForAtOnceIsMadeOnce) {
  num_asking = 0;
  GuideCache cache(tokenizer_, &MakeWhenAllAsk);
  std::vector<std::shared_ptr<const Guide>> got(kAskers);
  std::vector<std::thread> askers;
  for (auto& guide : got) {
    askers.emplace_back([&] {
      ++num_asking;
      auto made = cache.Get(Regex("a"), {.num_tokens = kMany}, nullptr);
      if (made.ok()) guide = *std::move(made);
    });
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(num_made, 1);
  EXPECT_NE(got[0], nullptr);
  for (const auto& guide : got) EXPECT_EQ(guide, got[0]);
}

TEST_F(GuideCacheTest, SpecialTokensThatAreShownHaveTheirTexts) {
  Get(Regex("a"));
  EXPECT_EQ(last_tokens->num_tokens(), tokenizer_->vocab_size());
  TokenId special = 0;
  while (!tokenizer_->IsSpecial(special)) ++special;
  EXPECT_EQ(last_tokens->Of(special), "");
  Get(Regex("a"), {special});
  EXPECT_EQ(num_made, 2);
  EXPECT_EQ(last_tokens->Of(special), tokenizer_->IdToToken(special));
}

TEST_F(GuideCacheTest, TokensThatTheEngineHasNotAreLeftOut) {
  ASSERT_TRUE(cache_.Get(Regex("a"), {.num_tokens = 10}, nullptr).ok());
  EXPECT_EQ(last_tokens->num_tokens(), 10);
}

TEST_F(GuideCacheTest, WhatIsTooLargeIsTheClientsFault) {
  const auto made = cache_.Get(Regex("refuse"), {.num_tokens = kMany}, nullptr);
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(made.status().message(), "too large");
  EXPECT_EQ(cache_.Get(Regex("refuse"), {.num_tokens = kMany}, nullptr).status(), made.status());
  EXPECT_EQ(num_made, 1) << "what cannot be made is not tried again";
}

TEST_F(GuideCacheTest, TheLongestUnusedIsForgottenWhereBytesAreTooMany) {
  const std::weak_ptr<const Guide> first = Get(Regex("0"));
  const std::weak_ptr<const Guide> second = Get(Regex("1"));
  Get(Regex("2"));
  Get(Regex("0"));
  Get(Regex("3"));  // 320 MiB of 256
  EXPECT_FALSE(first.expired());
  EXPECT_TRUE(second.expired());
}

TEST_F(GuideCacheTest, AGuideIsChargedWhileItIsKeptOrUsed) {
  const auto account = MemoryAccount::Make({.hard_bytes = size_t{1} << 30});
  const auto share = account->NewConnection("someone", [] {});
  auto used = Get(Regex("0"), {}, share);
  EXPECT_GE(account->used_bytes(), kGuideBytes);
  EXPECT_LT(account->used_bytes(), kGuideBytes + 4096);
  for (const char* other : {"1", "2", "3"}) Get(Regex(other));
  EXPECT_FALSE(cache_.Has(Regex("0"), {.num_tokens = kMany}));
  EXPECT_GE(account->used_bytes(), kGuideBytes);
  used.reset();
  EXPECT_EQ(account->used_bytes(), 0U);
}

TEST_F(GuideCacheTest, WhatAGuideHasGrownByIsChargedAndCounts) {
  const auto account = MemoryAccount::Make({.hard_bytes = size_t{1} << 30});
  const auto share = account->NewConnection("someone", [] {});
  auto used = Get(Regex("grows"), {}, share);
  Get(Regex("1"));
  Get(Regex("2"));
  grown_bytes = kGuideBytes;  // 320 MiB of 256
  Get(Regex("2"));            // each looks at one of the others
  Get(Regex("2"));
  EXPECT_FALSE(cache_.Has(Regex("grows"), {.num_tokens = kMany}));
  EXPECT_TRUE(cache_.Has(Regex("1"), {.num_tokens = kMany}));
  EXPECT_GE(account->used_bytes(), 2 * kGuideBytes);
  used.reset();
  EXPECT_EQ(account->used_bytes(), 0U);
}

TEST_F(GuideCacheTest, ARequestForOneThatIsKeptLooksAtFewOthers) {
  for (int i = 0; i < 100; ++i) Get(Regex("small" + std::to_string(i)));
  num_looks = 0;
  Get(Regex("small50"));
  EXPECT_LT(num_looks, 10);
  EXPECT_EQ(num_made, 100);
}

TEST_F(GuideCacheTest, WhatOthersGrowByIsSeenHoweverRequestsAlternate) {
  Get(Regex("grows"));
  for (const char* other : {"small0", "small1", "small2", "small3"}) Get(Regex(other));
  grown_bytes = 3 * kGuideBytes;
  for (int i = 0; i < 6; ++i) Get(Regex("small" + std::to_string(i % 2)));
  EXPECT_FALSE(cache_.Has(Regex("grows"), {.num_tokens = kMany}));
}

TEST_F(GuideCacheTest, AGuideIsNotKeptThatHasGrownPastItsClientsRoom) {
  const auto account = MemoryAccount::Make({.hard_bytes = 3 * kGuideBytes / 2});
  const auto share = account->NewConnection("someone", [] {});
  Get(Regex("grows"), {}, share);
  grown_bytes = kGuideBytes;
  EXPECT_NE(Get(Regex("grows"), {}, share), nullptr);
  EXPECT_FALSE(cache_.Has(Regex("grows"), {.num_tokens = kMany}));
  EXPECT_EQ(account->used_bytes(), 0U);
}

TEST_F(GuideCacheTest, AClientWithoutRoomGetsNone) {
  const auto account = MemoryAccount::Make({.hard_bytes = size_t{1} << 20});
  const auto share = account->NewConnection("someone", [] {});
  EXPECT_EQ(cache_.Get(Regex("0"), {}, share).status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(cache_.Has(Regex("0"), {.num_tokens = kMany}));
  EXPECT_EQ(account->used_bytes(), 0U);
}

}  // namespace
}  // namespace inflight::serving
