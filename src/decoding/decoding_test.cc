// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "decoding/philox.h"
#include "decoding/sampler.h"
#include "decoding/stop.h"
#include "decoding/weights.h"

namespace inflight::decoding {
namespace {

// Known answers of the authors' reference implementation (Random123, kat_vectors: philox4x32 10
// rounds).
TEST(PhiloxTest, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, UniformIsInTheHalfOpenIntervalAndHasMeanOneHalf) {
  double sum = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const double u = UniformAt(7, i);
    ASSERT_GT(u, 0.0);
    ASSERT_LE(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 4 * std::sqrt(1.0 / 12 / 100000));  // four standard deviations
}

TEST(WeightsTest, ExponentialIsNearAndExactAtZero) {
  EXPECT_EQ(ExpOfMinus(0.0F), 1.0F);
  EXPECT_EQ(Weight(0.0F), kUnitWeight);
  EXPECT_EQ(Weight(kWeightless), 0);
  EXPECT_GT(Weight(kWeightless - 0.1F), 0);
  for (int i = 0; i < 800000; ++i) {
    const float d = static_cast<float>(i) * 1e-4F;
    const double want = std::exp(-static_cast<double>(d));
    // The polynomial; d * log2(e), whose product and constant are rounded.
    ASSERT_NEAR(ExpOfMinus(d) / want, 1.0, 2.5e-7 + 7.5e-8 * static_cast<double>(d)) << d;
  }
}

TEST(WeightsTest, NothingIsFartherThanFarthest) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Distance(3.0F, -infinity), kFarthest);
  EXPECT_EQ(Distance(3.0F, std::numeric_limits<float>::quiet_NaN()), kFarthest);
  EXPECT_EQ(Distance(3.0F, 3.0F), 0.0F);
  EXPECT_EQ(std::bit_cast<uint32_t>(Distance(-0.0F, -0.0F)), 0U);
}

TEST(WeightsTest, TargetIsAtLeastOneAndAtMostTheSum) {
  EXPECT_EQ(TargetWeight(1.0, 1.0F, 1000), 1000U);
  EXPECT_EQ(TargetWeight(1e-12, 1e-6F, 1000), 1U);
  EXPECT_EQ(TargetWeight(0.5, 0.5F, 1001), 251U);  // 250.25
}

TEST(StopTest, EndIdWinsOverStopWordAndLength) {
  const StopCriteria criteria{
      .end_ids = {9}, .stop_words = {{8, 9}}, .num_prompt_tokens = 1, .max_seq_len = 3};
  EXPECT_EQ(CheckStop(criteria, std::vector<TokenId>{1, 8, 9}), FinishReason::kEndId);
  EXPECT_EQ(CheckStop(criteria, std::vector<TokenId>{1, 8, 7}), FinishReason::kLength);
  EXPECT_EQ(CheckStop(criteria, std::vector<TokenId>{1, 8}), FinishReason::kNotFinished);
}

TEST(StopTest, StopWordMayBeginInThePromptButNeedsAGeneratedToken) {
  const StopCriteria criteria{
      .end_ids = {}, .stop_words = {{4, 5}}, .num_prompt_tokens = 2, .max_seq_len = 10};
  EXPECT_EQ(CheckStop(criteria, std::vector<TokenId>{4, 5}), FinishReason::kNotFinished);
  EXPECT_EQ(CheckStop(criteria, std::vector<TokenId>{3, 4, 5}), FinishReason::kStopWords);
}

class SamplerTest : public ::testing::Test {
 protected:
  static constexpr int kVocab = 5;

  SampledToken Draw(const Request& request, std::vector<float> logits, uint64_t seed = 0,
                    std::vector<TokenId> tokens = {0}) {
    sampler_.Setup(0, MakeSamplingRule(request, seed, static_cast<int>(tokens.size())), tokens,
                   /*max_seq_len=*/1024);
    return sampler_.Sample(0, tokens, logits.data());
  }

  // Frequencies of ids over seeds.
  std::vector<double> Frequencies(const Request& request, const std::vector<float>& logits) {
    constexpr int kDraws = 20000;
    std::vector<double> frequency(kVocab);
    for (int seed = 0; seed < kDraws; ++seed)
      frequency[Draw(request, logits, seed).id] += 1.0 / kDraws;
    return frequency;
  }

  static void ExpectNear(const std::vector<double>& got, const std::vector<double>& want) {
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 5 * std::sqrt(want[i] * (1 - want[i]) / 20000) + 1e-9)
          << "id " << i;
  }

  Sampler sampler_{1, kVocab, 1};
};

TEST_F(SamplerTest, GreedyTakesTheLowestIdAmongTies) {
  EXPECT_EQ(Draw({}, {1, 3, 2, 3, 0}).id, 1);
  Request zero_temperature;
  zero_temperature.sampling.temperature = 0;
  zero_temperature.sampling.top_p = 0.9F;
  EXPECT_EQ(Draw(zero_temperature, {1, 3, 2, 3, 0}).id, 1);
}

TEST_F(SamplerTest, GreedyLogProbIsOverTheVocabulary) {
  Request request;
  request.output.return_log_probs = true;
  const SampledToken token = Draw(request, {0, std::log(3.0F), 0, 0, 0});
  EXPECT_NEAR(token.log_prob, std::log(3.0 / 7), 1e-6);
  EXPECT_NEAR(token.log_prob_all, std::log(3.0 / 7), 1e-6);
}

// P = 0.4, 0.3, 0.2, 0.1, 0. Top-k 2 with top-p 0.75: S = 0.7, mass kept 0.525: the first id 0.4,
// the boundary id 0.125.
TEST_F(SamplerTest, TopPInsideTopKCutsTheBoundaryToken) {
  Request request;
  request.sampling.top_k = 2;
  request.sampling.top_p = 0.75F;
  const std::vector<float> logits = {std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F),
                                     -1e30F};
  ExpectNear(Frequencies(request, logits), {0.4 / 0.525, 0.125 / 0.525, 0, 0, 0});
}

// Top-p 0.6 alone: 0.4 and 0.2 of the boundary token's 0.3.
TEST_F(SamplerTest, TopPAloneDrawsFromTheNucleus) {
  Request request;
  request.sampling.top_p = 0.6F;
  const std::vector<float> logits = {std::log(0.1F), std::log(0.3F), std::log(0.4F), std::log(0.2F),
                                     -1e30F};
  ExpectNear(Frequencies(request, logits), {0, 0.2 / 0.6, 0.4 / 0.6, 0, 0});
}

TEST_F(SamplerTest, MinPDropsWhatIsLightBesideTheHeaviest) {
  Request request;
  request.sampling.min_p = 0.6F;  // keeps 0.4 and 0.3
  const std::vector<float> logits = {std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F),
                                     -1e30F};
  ExpectNear(Frequencies(request, logits), {0.4 / 0.7, 0.3 / 0.7, 0, 0, 0});
}

// P = 0.4, 0.3, 0.2, 0.1: -log P = 0.916, 1.204, 1.609, 2.303, H = 1.280; they lie 0.364, 0.076,
// 0.330 and 1.023 from it. In that order 0.3 + 0.2 reach 0.4, and with 0.4 they reach 0.7.
TEST_F(SamplerTest, TypicalPKeepsWhatIsNearTheEntropy) {
  Request request;
  const std::vector<float> logits = {std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F),
                                     -1e30F};
  request.sampling.typical_p = 0.4F;
  ExpectNear(Frequencies(request, logits), {0, 0.3 / 0.5, 0.2 / 0.5, 0, 0});
  request.sampling.typical_p = 0.7F;
  ExpectNear(Frequencies(request, logits), {0.4 / 0.9, 0.3 / 0.9, 0.2 / 0.9, 0, 0});
  request.sampling.typical_p = 0.01F;
  ExpectNear(Frequencies(request, logits), {0, 1, 0, 0, 0});
}

// Top-p 0.6 leaves 4/7 and 3/7: -log P = 0.560, 0.847, H = 0.683, the first is nearer. Top-k 3
// leaves 4/9, 3/9, 2/9: 0.811, 1.099, 1.504, H = 1.061, the second is.
TEST_F(SamplerTest, TypicalPComesAfterTopKAndTopP) {
  Request request;
  const std::vector<float> logits = {std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F),
                                     -1e30F};
  request.sampling = {.top_p = 0.6F, .typical_p = 0.5F};
  ExpectNear(Frequencies(request, logits), {1, 0, 0, 0, 0});
  request.sampling = {.top_k = 3, .typical_p = 0.2F};
  ExpectNear(Frequencies(request, logits), {0, 1, 0, 0, 0});
}

TEST_F(SamplerTest, TypicalPOfOneIsGreedyWhereNothingElseDraws) {
  Request request;
  request.sampling.typical_p = 1.0F;
  EXPECT_TRUE(MakeSamplingRule(request, 0, 0).greedy);
}

TEST_F(SamplerTest, TemperatureFlattens) {
  Request request;
  request.sampling.top_p = 1.0F;
  request.sampling.temperature = 2.0F;
  const std::vector<float> logits = {std::log(16.0F), 0, -1e30F, -1e30F, -1e30F};  // sqrt: 4 to 1
  ExpectNear(Frequencies(request, logits), {0.8, 0.2, 0, 0, 0});
}

TEST_F(SamplerTest, TopKLogProbsFollowTheNormalizeFlagAndCumulativeOnesDoNot) {
  Request request;
  request.sampling.top_k = 2;
  request.output.return_log_probs = true;
  const std::vector<float> logits = {std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F),
                                     -1e30F};
  SampledToken token = Draw(request, logits, 3);
  const double p = token.id == 0 ? 0.4 : 0.3;
  EXPECT_NEAR(token.log_prob, std::log(p / 0.7), 1e-5);
  EXPECT_NEAR(token.log_prob_all, std::log(p), 1e-5);
  request.output.normalize_log_probs = false;
  token = Draw(request, logits, 3);
  EXPECT_NEAR(token.log_prob, std::log(p), 1e-5);
}

// Tokens {1, 1, 3}: repetition 2 halves 4.0 to 2.0 and doubles -1 to -2; presence 0.5; frequency
// 0.25 per occurrence.
TEST_F(SamplerTest, PenaltiesApplyOncePerDistinctTokenAndFrequencyPerOccurrence) {
  Request request;
  request.sampling.repetition_penalty = 2.0F;
  request.sampling.presence_penalty = 0.5F;
  request.sampling.frequency_penalty = 0.25F;
  request.output.return_log_probs = true;
  // id 1: 4/2 - 0.5 - 0.5 = 1.0; id 3: -1*2 - 0.5 - 0.25 = -2.75; best is id 2 with 1.5
  const SampledToken token = Draw(request, {0, 4.0F, 1.5F, -1.0F, 0}, 0, {1, 1, 3});
  EXPECT_EQ(token.id, 2);
  const double sum =
      std::exp(0.0) + std::exp(1.0) + std::exp(1.5) + std::exp(-2.75) + std::exp(0.0);
  EXPECT_NEAR(token.log_prob, 1.5 - std::log(sum), 1e-5);
}

TEST_F(SamplerTest, ReusedSlotForgetsTheCountsOfTheSequenceBefore) {
  Request request;
  request.sampling.presence_penalty = 10.0F;
  EXPECT_EQ(Draw(request, {0, 4, 3, 0, 0}, 0, {1}).id, 2);
  EXPECT_EQ(Draw(request, {0, 4, 3, 0, 0}, 0, {4}).id, 1);
}

TEST_F(SamplerTest, RowsWithoutAFiniteLargestGiveTheArgMax) {
  const float infinity = std::numeric_limits<float>::infinity();
  Request request;
  request.sampling.top_p = 0.9F;
  request.output.return_log_probs = true;
  EXPECT_EQ(Draw(request, {1, 2, infinity, infinity, 0}).id, 2);
  EXPECT_EQ(Draw(request, std::vector<float>(kVocab, -infinity)).id, 0);
  EXPECT_EQ(Draw(request, {-infinity, -infinity, 0, -infinity, -infinity}).log_prob, 0.0F);
  request.sampling.top_k = 3;
  EXPECT_EQ(Draw(request, {std::nanf(""), std::nanf(""), 0, std::nanf(""), std::nanf("")}).id, 2);
}

TEST_F(SamplerTest, SameSeedAndPositionGiveTheSameToken) {
  Request request;
  request.sampling.top_p = 1.0F;
  const std::vector<float> logits = {0, 0, 0, 0, 0};
  std::map<TokenId, int> seen;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const TokenId id = Draw(request, logits, seed).id;
    EXPECT_EQ(Draw(request, logits, seed).id, id);
    ++seen[id];
  }
  EXPECT_EQ(seen.size(), 5U);
}

}  // namespace
}  // namespace inflight::decoding
