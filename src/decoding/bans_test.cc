// SPDX-License-Identifier: Apache-2.0
// What docs/reference/decoding.md says of a row, by hand.
#include "decoding/bans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "decoding/sampler.h"
#include "decoding/weights.h"

namespace inflight::decoding {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kVocab = 10;

SamplingRule RuleOf(const Request& request, int num_prompt_tokens = 1) {
  return MakeSamplingRule(request, /*seed=*/0, num_prompt_tokens);
}

std::vector<TokenId> Banned(const Request& request, const std::vector<TokenId>& tokens) {
  std::vector<float> row(kVocab);
  Ban(RuleOf(request), tokens, row);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < kVocab; ++id)
    if (row[static_cast<size_t>(id)] == -std::numeric_limits<float>::infinity()) ids.push_back(id);
  return ids;
}

std::vector<TokenId> BannedByNgrams(int size, const std::vector<TokenId>& tokens) {
  Request request;
  request.sampling.no_repeat_ngram_size = size;
  return Banned(request, tokens);
}

std::vector<TokenId> BannedByWords(std::vector<std::vector<TokenId>> words,
                                   const std::vector<TokenId>& tokens) {
  Request request;
  request.bad_words = std::move(words);
  return Banned(request, tokens);
}

TEST(BansTest, NgramsThatStandAlreadyAreNotCompletedAgain) {
  EXPECT_THAT(BannedByNgrams(1, {1, 2, 1}), ElementsAre(1, 2));
  EXPECT_THAT(BannedByNgrams(2, {1, 2, 3, 1}), ElementsAre(2));
  EXPECT_THAT(BannedByNgrams(2, {1, 2, 1, 3, 1}), ElementsAre(2, 3));
  EXPECT_THAT(BannedByNgrams(3, {1, 2, 3, 1, 2}), ElementsAre(3));
  EXPECT_THAT(BannedByNgrams(3, {1, 2, 3, 2}), IsEmpty());
  EXPECT_THAT(BannedByNgrams(0, {1, 1, 1}), IsEmpty());
}

TEST(BansTest, NgramsMayOverlap) {
  EXPECT_THAT(BannedByNgrams(2, {4, 4}), ElementsAre(4));
  EXPECT_THAT(BannedByNgrams(3, {4, 4}), IsEmpty());
  EXPECT_THAT(BannedByNgrams(3, {4, 4, 4}), ElementsAre(4));
}

TEST(BansTest, NgramLongerThanTheSequenceBansNothing) {
  EXPECT_THAT(BannedByNgrams(4, {1, 2, 3}), IsEmpty());
  EXPECT_THAT(BannedByNgrams(std::numeric_limits<int>::max(), {1, 2, 3}), IsEmpty());
}

TEST(BansTest, WordOfOneIdIsAlwaysBanned) {
  EXPECT_THAT(BannedByWords({{0}, {7}}, {1}), ElementsAre(0, 7));  // 0 too
}

TEST(BansTest, LastIdOfAWordIsBannedWhereTheOthersStand) {
  EXPECT_THAT(BannedByWords({{5, 6}}, {5}), ElementsAre(6));
  EXPECT_THAT(BannedByWords({{5, 6}}, {5, 1}), IsEmpty());
  EXPECT_THAT(BannedByWords({{5, 6}, {1, 2, 3}, {2, 2}}, {5, 1, 2}), ElementsAre(2, 3));
  EXPECT_THAT(BannedByWords({{1, 2, 3, 4}}, {2, 3}), IsEmpty());  // longer than the sequence
}

TEST(BansTest, EndIdsComeNotBeforeSoManyGeneratedTokens) {
  Request request;
  request.end_ids = {3, 9};
  request.sampling.min_tokens = 2;
  const SamplingRule rule = RuleOf(request, /*num_prompt_tokens=*/3);
  for (int length = 3; length < 7; ++length) {
    std::vector<float> row(kVocab);
    Ban(rule, std::vector<TokenId>(static_cast<size_t>(length), 1), row);
    const float want = length < 5 ? -std::numeric_limits<float>::max() : 0.0F;
    EXPECT_EQ(row[3], want) << length;
    EXPECT_EQ(row[9], want) << length;
    EXPECT_EQ(row[4], 0.0F) << length;
  }
}

TEST(BansTest, MinTokensBeyondAllLengthsDoesNotOverflow) {
  Request request;
  request.end_ids = {3};
  request.sampling.min_tokens = std::numeric_limits<int>::max();
  std::vector<float> row(kVocab);
  Ban(RuleOf(request, /*num_prompt_tokens=*/100), std::vector<TokenId>(200, 1), row);
  EXPECT_LT(row[3], 0.0F);
}

TEST(BansTest, EarlyEndIsTakenBeforeABannedToken) {
  Request request;
  request.end_ids = {1};
  request.sampling.min_tokens = 5;
  request.bad_words = {{0}, {2}};
  std::vector<float> row = {5, 0, 7};
  Sampler sampler(1, 3, 1);
  const std::vector<TokenId> tokens = {2};
  sampler.Setup(0, RuleOf(request), tokens, 16);
  EXPECT_EQ(sampler.Sample(0, tokens, row.data()).id, 1);
}

class EditsTest : public ::testing::Test {
 protected:
  // Log P of each of three ids after `tokens`, of which the first `num_prompt_tokens` are prompt:
  // as reported with the first seed that draws it; 0 = none of many does.
  std::vector<double> LogProbs(Request request, const std::vector<float>& logits,
                               const std::vector<TokenId>& tokens = {0},
                               int num_prompt_tokens = 1) {
    request.output.return_log_probs = true;
    request.sampling.top_p = 1.0F;
    Sampler sampler(1, 3, 1);
    std::vector<double> result(3);
    for (uint64_t seed = 0; seed < 1000; ++seed) {
      std::vector<float> row = logits;
      sampler.Setup(0, MakeSamplingRule(request, seed, num_prompt_tokens), tokens, 16);
      const SampledToken token = sampler.Sample(0, tokens, row.data());
      result[static_cast<size_t>(token.id)] = token.log_prob;
    }
    return result;
  }

  // That `got` are the log-probs of logits `want`.
  static void ExpectSoftmaxOf(const std::vector<double>& want, const std::vector<double>& got) {
    double sum = 0;
    for (const double x : want) sum += std::exp(x);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i] - std::log(sum), 1e-5) << i;
  }
};

TEST_F(EditsTest, BiasIsAddedBeforeTheTemperature) {
  Request request;
  request.embedding_bias = std::make_shared<std::vector<float>>(std::vector<float>{0, 2, -1});
  request.sampling.temperature = 2.0F;
  ExpectSoftmaxOf({0.5, 1.5, 0.0}, LogProbs(request, {1, 1, 1}));
}

// Id 0 stands in the prompt: (-1 + 3) / 2; without the bias it would be -1 * 2.
TEST_F(EditsTest, BiasIsAddedBeforeThePenalties) {
  Request request;
  request.embedding_bias = std::make_shared<std::vector<float>>(std::vector<float>{3, 0, 0});
  request.sampling.repetition_penalty = 2.0F;
  ExpectSoftmaxOf({1.0, 0.5, 0.5}, LogProbs(request, {-1, 0.5F, 0.5F}));
}

// 2 / T = 1, then / 2, then - 0.25 - 2 * 0.125.
TEST_F(EditsTest, PenaltiesActOnLogitsThatTheTemperatureScaled) {
  Request request;
  request.sampling.temperature = 2.0F;
  request.sampling.repetition_penalty = 2.0F;
  request.sampling.presence_penalty = 0.25F;
  request.sampling.frequency_penalty = 0.125F;
  ExpectSoftmaxOf({0.0, 0.5, 1.0}, LogProbs(request, {2, 1, 2}, {0, 0}, 1));
}

TEST_F(EditsTest, IgnoredPromptTokensAreNotCounted) {
  Request request;
  request.sampling.frequency_penalty = 0.5F;
  request.sampling.prompt_ignore_length = 2;
  ExpectSoftmaxOf({0.5, 0.5, 1.0}, LogProbs(request, {1, 1, 1}, {0, 1, 1, 0}, 3));
}

TEST_F(EditsTest, GeneratedTokensAreCountedHoweverManyAreIgnored) {
  Request request;
  request.sampling.frequency_penalty = 0.5F;
  request.sampling.prompt_ignore_length = 100;
  ExpectSoftmaxOf({0.5, 1.0, 1.0}, LogProbs(request, {1, 1, 1}, {0, 1, 1, 0}, 3));
}

TEST_F(EditsTest, LogProbsAreThoseAfterBans) {
  Request request;
  request.bad_words = {{1}};
  const std::vector<double> got = LogProbs(request, {1, 9, 2});
  EXPECT_NEAR(got[0], -std::log(1 + std::exp(1.0)), 1e-5);
  EXPECT_EQ(got[1], 0.0);  // never drawn
}

Request Decaying(float top_p, float decay, float min, TokenId reset_id) {
  Request request;
  request.sampling.top_p = top_p;
  request.sampling.top_p_decay = decay;
  request.sampling.top_p_min = min;
  request.sampling.top_p_reset_id = reset_id;
  return request;
}

TEST(TopPDecayTest, FallsToItsFloorAndStartsAnewAfterTheResetId) {
  const SamplingRule rule = RuleOf(Decaying(0.75F, 0.5F, 0.25F, /*reset_id=*/7), 2);
  EXPECT_EQ(TopPAfter(rule, std::vector<TokenId>{7, 7}), 0.75F);  // the prompt does not count
  EXPECT_EQ(TopPAfter(rule, std::vector<TokenId>{1, 1, 1}), 0.375F);
  EXPECT_EQ(TopPAfter(rule, std::vector<TokenId>{1, 1, 1, 1}), 0.25F);
  EXPECT_EQ(TopPAfter(rule, std::vector<TokenId>{1, 1, 1, 1, 1}), 0.25F);
  EXPECT_EQ(TopPAfter(rule, std::vector<TokenId>{1, 1, 1, 1, 7}), 0.75F);
  EXPECT_EQ(TopPAfter(rule, std::vector<TokenId>{1, 1, 1, 7, 1}), 0.375F);
}

TEST(TopPDecayTest, FloorAboveTheFirstHoldsFromTheSecondDrawOn) {
  const SamplingRule rule = RuleOf(Decaying(0.25F, 1.0F, 0.5F, -1));
  EXPECT_EQ(TopPAfter(rule, std::vector<TokenId>{1}), 0.25F);
  EXPECT_EQ(TopPAfter(rule, std::vector<TokenId>{1, 1}), 0.5F);
}

TEST(TopPDecayTest, ActsOnTheTopPPathAlone) {
  Request request = Decaying(0.75F, 0.5F, 0.25F, -1);
  request.sampling.top_k = 5;
  EXPECT_EQ(TopPAfter(RuleOf(request), std::vector<TokenId>{1, 1, 1}), 0.75F);
  request.sampling.top_k = 0;
  request.sampling.temperature = 0.0F;
  EXPECT_FALSE(RuleOf(request).has_top_p_decay());
}

// P = 1/2, 1/4, 1/4: of top-p 1/2 only id 0 is drawn.
TEST(TopPDecayTest, DrawsFollowTheCurrentTopPAlsoInASlotThatIsSetUpAgain) {
  const Request request = Decaying(1.0F, 0.5F, 0.5F, /*reset_id=*/2);
  Sampler sampler(1, 3, 1);
  std::vector<TokenId> tokens = {0};
  const auto num_others = [&] {  // of draws at many positions with the slot's top-p
    int count = 0;
    std::vector<TokenId> longer = tokens;
    for (int i = 0; i < 200; ++i) {
      std::vector<float> row = {std::log(2.0F), 0, 0};
      count += sampler.Sample(0, longer, row.data()).id != 0 ? 1 : 0;
      longer.push_back(0);
    }
    return count;
  };
  const auto append = [&](TokenId token) {
    tokens.push_back(token);
    sampler.Append(0, token);
  };
  const auto set_up = [&] { sampler.Setup(0, RuleOf(request), tokens, 1024); };
  set_up();
  EXPECT_GT(num_others(), 50);
  append(1);
  EXPECT_EQ(num_others(), 0);
  set_up();
  EXPECT_EQ(num_others(), 0);
  append(2);
  EXPECT_GT(num_others(), 50);
  set_up();
  EXPECT_GT(num_others(), 50);
}

}  // namespace
}  // namespace inflight::decoding
