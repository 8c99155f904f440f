// SPDX-License-Identifier: Apache-2.0
#include "decoding/draft_acceptance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "decoding/list_guide.h"
#include "decoding/sampler.h"

namespace inflight::decoding {
namespace {

Distribution Of(std::vector<double> shares) {
  Distribution out;
  for (size_t i = 0; i < shares.size(); ++i)
    if (shares[i] > 0) out.shares.push_back({static_cast<TokenId>(i), shares[i]});
  return out;
}

// p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4): token 1 is accepted at most half the time, and token 0
// is all that max(p - q, 0) has.
TEST(DraftAcceptanceTest, HandCalculation) {
  const Distribution p = Of({0.5, 0.25, 0.25});
  const Distribution q = Of({0.25, 0.5, 0.25});
  for (const double u : {0.01, 0.7, 1.0}) {
    EXPECT_EQ(AcceptOrReplace(p, q, 0, u, 0.5), 0) << "p / q = 2";
    EXPECT_EQ(AcceptOrReplace(p, q, 2, u, 0.5), 2) << "p / q = 1";
    EXPECT_EQ(AcceptOrReplace(p, q, 1, 0.5001, u), 0) << "p / q = 1/2";
  }
  EXPECT_EQ(AcceptOrReplace(p, q, 1, 0.5, 0.5), 1);
}

// p - q = (0.1, -0.6, 0.2, 0.3): of what is positive a sixth is token 0's, a third token 2's.
TEST(DraftAcceptanceTest, ReplacementsAreDrawnFromWhatIsLeft) {
  const Distribution p = Of({0.2, 0.1, 0.3, 0.4});
  const Distribution q = Of({0.1, 0.7, 0.1, 0.1});
  EXPECT_EQ(AcceptOrReplace(p, q, 1, 1, 0.16), 0);
  EXPECT_EQ(AcceptOrReplace(p, q, 1, 1, 0.17), 2);
  EXPECT_EQ(AcceptOrReplace(p, q, 1, 1, 0.49), 2);
  EXPECT_EQ(AcceptOrReplace(p, q, 1, 1, 0.51), 3);
  EXPECT_EQ(AcceptOrReplace(p, q, 1, 1, 1.0), 3);
}

TEST(DraftAcceptanceTest, WhatOneOfBothNeverDraws) {
  const Distribution p = Of({0.0, 0.5, 0.5});
  EXPECT_EQ(AcceptOrReplace(p, Of({1, 0, 0}), 0, 0.001, 0.3), 1) << "p = 0";
  EXPECT_EQ(AcceptOrReplace(p, Of({1, 0, 0}), 2, 1, 0.3), 2) << "q = 0";
}

std::vector<float> Logs(const std::vector<double>& shares) {
  std::vector<float> logits;
  for (const double share : shares) logits.push_back(static_cast<float>(std::log(share)));
  return logits;
}

MATCHER_P(ShareIs, expected, "") {
  return arg.id == expected.first && std::abs(arg.share - expected.second) < 1e-6;
}

TEST(DraftAcceptanceTest, DistributionIsWhatTheRuleLeaves) {
  const auto logits = Logs({0.1, 0.4, 0.2, 0.3});
  using Pair = std::pair<int, double>;
  const auto shares = [&](const SamplingRule& rule, float top_p) {
    return DistributionOf(rule, top_p, logits).shares;
  };
  using testing::ElementsAre;
  EXPECT_THAT(shares({.greedy = true}, 1), ElementsAre(ShareIs(Pair{1, 1})));
  EXPECT_THAT(shares({.greedy = false}, 1),
              ElementsAre(ShareIs(Pair{0, 0.1}), ShareIs(Pair{1, 0.4}), ShareIs(Pair{2, 0.2}),
                          ShareIs(Pair{3, 0.3})));
  EXPECT_THAT(shares({.greedy = false, .top_k = 2}, 1),
              ElementsAre(ShareIs(Pair{1, 4.0 / 7}), ShareIs(Pair{3, 3.0 / 7})));
  // Of token 3 only what top-p reaches into.
  EXPECT_THAT(shares({.greedy = false}, 0.5F),
              ElementsAre(ShareIs(Pair{1, 0.8}), ShareIs(Pair{3, 0.2})));
  EXPECT_THAT(shares({.greedy = false, .top_k = 3, .top_p = 0.5F}, 1),
              ElementsAre(ShareIs(Pair{1, 8.0 / 9}), ShareIs(Pair{3, 1.0 / 9})));
  EXPECT_THAT(shares({.greedy = false, .min_p = 0.6F}, 1),
              ElementsAre(ShareIs(Pair{1, 4.0 / 7}), ShareIs(Pair{3, 3.0 / 7})));
  EXPECT_NEAR(DistributionOf({.greedy = false, .top_k = 2}, 1, logits).kept, 1.75, 1e-5);
}

// Chi-square of counts against what plain draws are expected to give.
double ChiSquare(const std::vector<int>& counts, const Distribution& expected, int num_draws) {
  double sum = 0;
  for (const auto& [id, share] : expected.shares) {
    const double mean = share * num_draws;
    const double difference = counts[static_cast<size_t>(id)] - mean;
    sum += difference * difference / mean;
  }
  return sum;
}

// Logits of a target and of a draft model that is much like it.
std::pair<std::vector<float>, std::vector<float>> AlikeLogits(int vocab_size, uint32_t seed,
                                                              float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  const auto size = static_cast<size_t>(vocab_size);
  std::vector<float> target(size), draft(size);
  for (float& x : target) x = normal(random);
  for (size_t i = 0; i < size; ++i) draft[i] = target[i] + 0.4F * normal(random);
  return {target, draft};
}

// Drafts are drawn by the rule, seed and position of the target, from another model's logits.
TEST(DraftAcceptanceTest, WhatComesIsDistributedAsPlainDraws) {
  constexpr int kVocab = 12, kDraws = 40000;
  const auto [target, draft] = AlikeLogits(kVocab, 2, 1.5F);
  const std::vector<TokenId> tokens = {3, 1, 3, 7};
  const std::vector<SamplingRule> rules = {
      {.greedy = false},
      {.greedy = false, .temperature = 0.7F, .top_k = 5},
      {.greedy = false, .top_p = 0.8F},
      {.greedy = false, .top_k = 8, .top_p = 0.7F, .min_p = 0.05F},
      {.greedy = false, .repetition_penalty = 1.5F, .frequency_penalty = 0.3F},
  };
  for (size_t r = 0; r < rules.size(); ++r) {
    Sampler sampler(1, kVocab, 1);
    std::vector<int> counts(kVocab), drafted(kVocab);
    int num_accepted = 0;
    for (int i = 0; i < kDraws; ++i) {
      SamplingRule rule = rules[r];
      rule.seed = static_cast<uint64_t>(i);
      sampler.Setup(0, rule, tokens, 16);
      std::vector<float> row = draft;
      const TokenId proposed = sampler.Sample(0, tokens, row.data()).id;
      ++drafted[static_cast<size_t>(proposed)];
      row = target;
      const TokenId token =
          sampler
              .Verify(0, tokens, row.data(),
                      {.id = proposed, .logits = draft, .acceptance_threshold = {}})
              .id;
      ++counts[static_cast<size_t>(token)];
      num_accepted += token == proposed ? 1 : 0;
    }
    std::vector<float> row = target;
    sampler.Process(0, tokens, row.data());
    const Distribution expected = DistributionOf(rules[r], rules[r].top_p, row);
    int num_expected = 0;
    for (const auto& share : expected.shares) num_expected += counts[static_cast<size_t>(share.id)];
    EXPECT_EQ(num_expected, kDraws) << "rule " << r << ": tokens that it leaves out";
    // 31.3 is exceeded once in 1000 times by chance with 11 degrees of freedom.
    EXPECT_LT(ChiSquare(counts, expected, kDraws), 31.3) << "rule " << r;
    EXPECT_GT(ChiSquare(drafted, expected, kDraws), 500) << "rule " << r << ": drafts are others";
    EXPECT_GT(num_accepted, kDraws / 20);
  }
}

// Of a guide, or of bad words, that the draft model may know nothing of: what it proposes is often
// forbidden then.
TEST(DraftAcceptanceTest, WhatComesIsDistributedAsPlainDrawsWhateverTheDraftModelIsForbidden) {
  constexpr int kVocab = 12, kDraws = 40000;
  const auto [target, draft] = AlikeLogits(kVocab, 5, 1.0F);
  const std::vector<TokenId> tokens = {3, 1};
  const auto guide = MakeListGuide(kVocab, {{2}, {4}, {5}, {8}, {9}});
  const SamplingRule guided{.greedy = false, .num_prompt_tokens = 2, .guide = guide};
  const SamplingRule banned{.greedy = false, .num_prompt_tokens = 2, .bad_words = {{0}, {7}}};
  for (const bool is_guided : {true, false}) {
    for (const bool draft_knows : {true, false}) {
      SCOPED_TRACE(std::string(is_guided ? "a guide" : "bad words") +
                   (draft_knows ? ", known" : ", unknown"));
      SamplingRule rule = is_guided ? guided : banned;
      SamplingRule of_draft = draft_knows ? rule : SamplingRule{.greedy = false};
      Sampler sampler(2, kVocab, 1);
      std::vector<int> counts(kVocab);
      for (int i = 0; i < kDraws; ++i) {
        rule.seed = of_draft.seed = static_cast<uint64_t>(i);
        sampler.Setup(0, rule, tokens, 16);
        sampler.Setup(1, of_draft, tokens, 16);
        std::vector<float> row = draft;
        const TokenId proposed = sampler.Sample(1, tokens, row.data()).id;
        row = target;
        ++counts[static_cast<size_t>(
            sampler
                .Verify(0, tokens, row.data(),
                        {.id = proposed, .logits = draft, .acceptance_threshold = {}})
                .id)];
      }
      std::vector<float> row = target;
      sampler.Process(0, tokens, row.data());
      const Distribution expected = DistributionOf(rule, rule.top_p, row);
      EXPECT_EQ(expected.shares.size(), is_guided ? 5 : 10);
      int num_expected = 0;
      for (const auto& share : expected.shares)
        num_expected += counts[static_cast<size_t>(share.id)];
      EXPECT_EQ(num_expected, kDraws);
      // 27.9 is exceeded once in 1000 times by chance with 9 degrees of freedom.
      EXPECT_LT(ChiSquare(counts, expected, kDraws), is_guided ? 18.5 : 27.9);
    }
  }
}

TEST(DraftAcceptanceTest, LogProbsAreThoseOfTheTarget) {
  Sampler sampler(1, 4, 1);
  SamplingRule rule{.greedy = false, .top_k = 2, .wants_log_probs = true};
  const std::vector<TokenId> tokens = {0};
  sampler.Setup(0, rule, tokens, 8);
  auto row = Logs({0.1, 0.4, 0.2, 0.3});
  const auto same = row;
  const SampledToken token =
      sampler.Verify(0, tokens, row.data(), {.id = 3, .logits = same, .acceptance_threshold = {}});
  EXPECT_EQ(token.id, 3);
  EXPECT_NEAR(token.log_prob_all, std::log(0.3), 1e-5);
  EXPECT_NEAR(token.log_prob, std::log(3.0 / 7), 1e-5) << "conditional on the top-k set";
}

TEST(DraftAcceptanceTest, AThresholdTakesThePlaceOfChance) {
  const auto target = Logs({0.5, 0.25, 0.25});
  const auto draft = Logs({0.25, 0.5, 0.25});
  const std::vector<TokenId> tokens = {0};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Sampler sampler(1, 3, 1);
    sampler.Setup(0, {.greedy = false, .seed = seed}, tokens, 8);
    auto row = target;
    EXPECT_EQ(sampler.Verify(0, tokens, row.data(), {1, draft, 0.49F}).id, 1);
    row = target;
    EXPECT_EQ(sampler.Verify(0, tokens, row.data(), {1, draft, 0.51F}).id, 0);
  }
}

}  // namespace
}  // namespace inflight::decoding
