// SPDX-License-Identifier: Apache-2.0
// The rules of beam_search.h, one by one: numbers are calculated by hand from probabilities, and a
// search that prunes nothing is compared with an enumeration of all sequences.
#include "decoding/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <random>

namespace inflight::decoding {
namespace {

using Probabilities = std::vector<double>;  // [vocab_size] of the next token
constexpr TokenId kEnd = 0;                 // the end id of these tests

BeamRule Rule(int width, float length_penalty = 0, int early_stopping = 0, int max_tokens = 10) {
  return {.width = width,
          .num_returned = width,
          .length_penalty = length_penalty,
          .early_stopping = early_stopping,
          .wants_log_probs = true,
          .stop = {.end_ids = {kEnd}, .num_prompt_tokens = 1, .max_seq_len = 1 + max_tokens}};
}

// One step of a search whose live beams go on with these probabilities.
void Step(BeamSearch* search, const std::vector<Probabilities>& rows) {
  ASSERT_EQ(search->cum_log_probs().size(), rows.size());
  std::vector<BeamCandidate> candidates;
  for (size_t b = 0; b < rows.size(); ++b) {
    std::vector<float> logits;
    for (const double p : rows[b]) logits.push_back(static_cast<float>(std::log(p)) + 3.0F);
    BestContinuations(logits, static_cast<int>(b), search->cum_log_probs()[b],
                      search->rule().num_candidates(), &candidates);
  }
  search->Advance(&candidates);
}

std::vector<TokenId> TokensOf(const BeamSearch& search) {
  return {search.tokens().begin(), search.tokens().end()};
}
std::vector<int32_t> ParentsOf(const BeamSearch& search) {
  return {search.parents().begin(), search.parents().end()};
}
std::vector<double> LiveProbabilities(const BeamSearch& search) {
  std::vector<double> out;
  for (const float c : search.cum_log_probs()) out.push_back(std::exp(c));
  return out;
}
void ExpectNear(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-6) << i;
}
using Ids = std::vector<TokenId>;

TEST(BeamSearchTest, TheFirstStepExpandsOneBeam) {
  BeamSearch search(Rule(2), Ids{9});
  Step(&search, {{0.1, 0.2, 0.4, 0.3}});
  EXPECT_EQ(TokensOf(search), (Ids{2, 3}));
  EXPECT_EQ(ParentsOf(search), (std::vector<int32_t>{0, 0}));
  ExpectNear(LiveProbabilities(search), {0.4, 0.3});
  EXPECT_FALSE(search.is_done());
}

TEST(BeamSearchTest, BothSuccessorsMayComeFromOneParent) {
  BeamSearch search(Rule(2), Ids{9});
  Step(&search, {{0.1, 0.2, 0.4, 0.3}});
  // 0.4 * 0.5 = 0.2 and 0.4 * 0.4 = 0.16 beat 0.3 * 0.5 = 0.15.
  Step(&search, {{0.05, 0.5, 0.4, 0.05}, {0.1, 0.5, 0.2, 0.2}});
  EXPECT_EQ(TokensOf(search), (Ids{1, 2}));
  EXPECT_EQ(ParentsOf(search), (std::vector<int32_t>{0, 0}));
  ExpectNear(LiveProbabilities(search), {0.2, 0.16});
  // 0.16 * 0.9 = 0.144 is before 0.2 * 0.6 = 0.12: beams change places.
  Step(&search, {{0.1, 0.6, 0.2, 0.1}, {0.02, 0.04, 0.04, 0.9}});
  EXPECT_EQ(TokensOf(search), (Ids{3, 1}));
  EXPECT_EQ(ParentsOf(search), (std::vector<int32_t>{1, 0}));
  const auto best = search.Best();
  ASSERT_EQ(best.size(), 2u);
  EXPECT_EQ(best[0].output_ids, (Ids{2, 2, 3}));
  EXPECT_EQ(best[1].output_ids, (Ids{2, 1, 1}));
  EXPECT_EQ(best[0].finish_reason, FinishReason::kNotFinished);
}

TEST(BeamSearchTest, EachTokenHasTheRowThatItWasDrawnFrom) {
  BeamSearch search(Rule(2), Ids{9});
  const auto step = [&search](const std::vector<Probabilities>& probabilities, float name) {
    std::vector<BeamCandidate> candidates;
    std::vector<std::shared_ptr<const BeamRow>> rows;
    for (size_t b = 0; b < probabilities.size(); ++b) {
      std::vector<float> logits;
      for (const double p : probabilities[b]) logits.push_back(static_cast<float>(std::log(p)));
      BestContinuations(logits, static_cast<int>(b), search.cum_log_probs()[b], 4, &candidates);
      const float value = name + static_cast<float>(b);
      rows.push_back(std::make_shared<BeamRow>(
          BeamRow{.logits = {value, value}, .top_log_probs = {{static_cast<TokenId>(value), 0}}}));
    }
    search.Advance(&candidates, rows);
  };
  step({{0.1, 0.2, 0.4, 0.3}}, 10);
  // As above: the first step goes on with 2 and 3, then both with beam 0, then they change places.
  step({{0.05, 0.5, 0.4, 0.05}, {0.1, 0.5, 0.2, 0.2}}, 20);
  step({{0.1, 0.6, 0.2, 0.1}, {0.02, 0.04, 0.04, 0.9}}, 30);
  const auto best = search.Best(/*with_logits=*/true);
  ASSERT_EQ(best[0].output_ids, (Ids{2, 2, 3}));
  EXPECT_EQ(best[0].generation_logits.num_rows, 3);
  EXPECT_EQ(best[0].generation_logits.vocab_size, 2);
  EXPECT_EQ(best[0].generation_logits.values, (std::vector<float>{10, 10, 20, 20, 31, 31}));
  EXPECT_EQ(best[1].generation_logits.values, (std::vector<float>{10, 10, 20, 20, 30, 30}));
  ASSERT_EQ(best[0].top_log_probs.size(), 3U);
  EXPECT_EQ(best[0].top_log_probs[2].id, 31);
  const auto without = search.Best(/*with_logits=*/false);
  EXPECT_TRUE(without[0].generation_logits.values.empty()) << "of a stream under way";
  EXPECT_EQ(without[0].top_log_probs.size(), 3U);
}

TEST(BeamSearchTest, AnEndAmongTheFirstKEndsAndOneBehindThemDoesNot) {
  BeamSearch search(Rule(2), Ids{9});
  // In order: 1 (0.5), end (0.3), 2 (0.15), 3 (0.05). The end is at i = 1 < 2.
  Step(&search, {{0.3, 0.5, 0.15, 0.05}});
  EXPECT_EQ(TokensOf(search), (Ids{1, 2}));
  // In order: 0.5 * 0.6 (token 1), 0.5 * 0.25 (token 2), then the end with 0.5 * 0.1 at i = 2.
  Step(&search, {{0.1, 0.6, 0.25, 0.05}, {0.25, 0.25, 0.25, 0.25}});
  EXPECT_EQ(TokensOf(search), (Ids{1, 2}));
  const auto best = search.Best();
  ASSERT_EQ(best.size(), 2u);
  // What ended: 0.3; live: 0.3 and 0.125. Of equal scores what ended comes first.
  EXPECT_EQ(best[0].output_ids, Ids{});
  EXPECT_EQ(best[0].finish_reason, FinishReason::kEndId);
  EXPECT_NEAR(std::exp(best[0].cum_log_prob), 0.3, 1e-6);
  EXPECT_EQ(best[1].output_ids, (Ids{1, 1}));
}

TEST(BeamSearchTest, LengthCountsTheEndAndDividesTheScoreOnly) {
  BeamSearch search(Rule(2, /*length_penalty=*/1.0F), Ids{9});
  Step(&search, {{0.1, 0.5, 0.2, 0.2}});
  Step(&search, {{0.8, 0.1, 0.05, 0.05}, {0.1, 0.3, 0.3, 0.3}});
  const auto best = search.Best();
  // Ended: log 0.4 / 2. Live: 0.06 twice, of length 2 too.
  EXPECT_EQ(best[0].output_ids, Ids{1});
  EXPECT_NEAR(best[0].cum_log_prob, std::log(0.4), 1e-6);
  EXPECT_NEAR(best[0].score, std::log(0.4) / 2, 1e-6);
  ASSERT_EQ(best[0].output_log_probs.size(), 1u);
  EXPECT_NEAR(best[0].output_log_probs[0], std::log(0.5), 1e-6) << "the end's own is left out";
  EXPECT_NEAR(best[1].score, std::log(0.06) / 2, 1e-6);
}

TEST(BeamSearchTest, NormedScores) {
  EXPECT_FLOAT_EQ(NormedScore(-6, 3, 0.0F), -6.0F);
  EXPECT_FLOAT_EQ(NormedScore(-6, 1, 2.0F), -6.0F);
  EXPECT_FLOAT_EQ(NormedScore(-6, 4, 0.5F), -3.0F);
  EXPECT_FLOAT_EQ(NormedScore(-6, 2, -1.0F), -12.0F);
}

// Two ends: 0.3 at length 1, then 0.5 * 0.4 = 0.2 at length 2.
BeamSearch TwoEnds(const BeamRule& rule) {
  BeamSearch search(rule, Ids{9});
  Step(&search, {{0.3, 0.5, 0.1, 0.1}});
  EXPECT_FALSE(search.is_done());
  // In order: 0.25 (1), 0.2 (the end, i = 1), 0.045 (1 of beam 1), ...
  Step(&search, {{0.4, 0.5, 0.05, 0.05}, {0.1, 0.45, 0.25, 0.2}});
  return search;
}

TEST(BeamSearchTest, EarlyStoppingStopsAsSoonAsEnoughHaveEnded) {
  const BeamSearch search = TwoEnds(Rule(2, 0.0F, /*early_stopping=*/1));
  EXPECT_TRUE(search.is_done());
  const auto best = search.Best();
  ASSERT_EQ(best.size(), 2u);
  EXPECT_NEAR(std::exp(best[0].cum_log_prob), 0.3, 1e-6);
  EXPECT_NEAR(std::exp(best[1].cum_log_prob), 0.2, 1e-6);
  EXPECT_EQ(best[1].output_ids, Ids{1}) << "the live 0.25 is not in the answer";
}

TEST(BeamSearchTest, WithoutEarlyStoppingALiveBeamThatMayStillWinGoesOn) {
  BeamSearch search = TwoEnds(Rule(2));
  EXPECT_FALSE(search.is_done()) << "0.25 lives, and the worst that ended has 0.2";
  // 0.25 * 0.9 = 0.225 ends and takes the place of 0.2. What lives is worse: done.
  Step(&search, {{0.9, 0.06, 0.02, 0.02}, {0.1, 0.3, 0.3, 0.3}});
  EXPECT_TRUE(search.is_done());
  const auto best = search.Best();
  EXPECT_NEAR(std::exp(best[0].cum_log_prob), 0.3, 1e-6);
  EXPECT_NEAR(std::exp(best[1].cum_log_prob), 0.225, 1e-6);
  EXPECT_EQ(best[1].output_ids, (Ids{1, 1}));
}

TEST(BeamSearchTest, AnEndWorseThanAllThatEndedIsPassedOverUnlessEarlyStopping) {
  for (const int early_stopping : {0, 2}) {
    BeamSearch search = TwoEnds(Rule(2, 0.0F, early_stopping));
    // In order: 0.25 * 0.7 (1), then the end with 0.25 * 0.2 = 0.05 < 0.2 at i = 1, 0.0225 (2).
    Step(&search, {{0.2, 0.7, 0.09, 0.01}, {0.2, 0.4, 0.2, 0.2}});
    EXPECT_EQ(TokensOf(search), (Ids{1, 2}));
    EXPECT_TRUE(search.is_done()) << "0.175 cannot pass 0.2 any more";
    EXPECT_NEAR(std::exp(search.Best()[1].cum_log_prob), 0.2, 1e-6);
  }
}

TEST(BeamSearchTest, NeverWaitsAsLongAsALongerSequenceMightWin) {
  // Worst ended: log 0.2 / 2 = -0.805. Live: log 0.15 / 2 = -0.949 as of now, but
  // log 0.15 / 10 = -0.190 if its other tokens were certain.
  const auto at_length_two = [](int early_stopping, int max_tokens) {
    BeamSearch search(Rule(2, 1.0F, early_stopping, max_tokens), Ids{9});
    Step(&search, {{0.4, 0.5, 0.05, 0.05}});
    Step(&search, {{0.4, 0.3, 0.2, 0.1}, {0.25, 0.25, 0.25, 0.25}});
    return search.is_done();
  };
  EXPECT_TRUE(at_length_two(1, 10));
  EXPECT_TRUE(at_length_two(0, 10));
  EXPECT_FALSE(at_length_two(2, 10));
  EXPECT_FALSE(at_length_two(7, 10)) << "anything but 0 and 1";
  EXPECT_FALSE(at_length_two(2, 3)) << "log 0.15 / 3 = -0.632";
  BeamSearch search(Rule(2, 0.0F, /*early_stopping=*/2), Ids{9});
  Step(&search, {{0.4, 0.5, 0.05, 0.05}});
  Step(&search, {{0.4, 0.3, 0.2, 0.1}, {0.25, 0.25, 0.25, 0.25}});
  EXPECT_TRUE(search.is_done()) << "without a length penalty nothing longer can win";
}

TEST(BeamSearchTest, AtTheLengthLimitTheLiveOnesTakePart) {
  BeamSearch search(Rule(2, 1.0F, 0, /*max_tokens=*/2), Ids{9});
  Step(&search, {{0.1, 0.5, 0.3, 0.1}});
  Step(&search, {{0.1, 0.6, 0.2, 0.1}, {0.7, 0.1, 0.1, 0.1}});
  EXPECT_TRUE(search.is_done());
  const auto best = search.Best();
  // Live 0.3, ended 0.21, live 0.1, all of length 2.
  ASSERT_EQ(best.size(), 2u);
  EXPECT_EQ(best[0].output_ids, (Ids{1, 1}));
  EXPECT_EQ(best[0].finish_reason, FinishReason::kLength);
  EXPECT_NEAR(best[0].score, std::log(0.3) / 2, 1e-6);
  EXPECT_EQ(best[1].output_ids, Ids{2});
  EXPECT_EQ(best[1].finish_reason, FinishReason::kEndId);
  EXPECT_NEAR(best[1].score, std::log(0.21) / 2, 1e-6);
}

TEST(BeamSearchTest, TheDiversityRateOrdersAndIsNotStored) {
  const std::vector<Probabilities> rows = {{0.05, 0.5, 0.4, 0.05}, {0.1, 0.5, 0.2, 0.2}};
  BeamRule rule = Rule(2);
  rule.diversity_rate = 1.0F;  // beam 1 is taken for e = 2.718 times as likely
  BeamSearch search(rule, Ids{9});
  Step(&search, {{0.1, 0.2, 0.4, 0.3}});
  Step(&search, rows);
  // 0.15 e = 0.408 (1 of beam 1) is first, then 0.2 (1 of beam 0): 0.06 e = 0.163.
  EXPECT_EQ(ParentsOf(search), (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(TokensOf(search), (Ids{1, 1}));
  ExpectNear(LiveProbabilities(search), {0.15, 0.2});
}

TEST(BeamSearchTest, OnlySoManySequencesAreReturned) {
  BeamRule rule = Rule(4, 0.0F, 0, /*max_tokens=*/1);
  rule.num_returned = 3;
  BeamSearch search(rule, Ids{9});
  Step(&search, {{0.1, 0.2, 0.15, 0.3, 0.25}});
  const auto best = search.Best();
  ASSERT_EQ(best.size(), 3u);
  EXPECT_EQ(best[0].output_ids, Ids{3});
  EXPECT_EQ(best[2].output_ids, Ids{1});
}

TEST(BeamSearchTest, StopWordsEndAndAreReturned) {
  BeamRule rule = Rule(2);
  rule.stop.stop_words = {{9, 1}, {2, 3}};  // the first may begin in the prompt
  BeamSearch search(rule, Ids{8, 9});
  Step(&search, {{0.1, 0.4, 0.3, 0.2}});
  EXPECT_EQ(TokensOf(search), (Ids{2, 3}));
  EXPECT_EQ(search.Best()[0].output_ids, Ids{1});
  EXPECT_EQ(search.Best()[0].finish_reason, FinishReason::kStopWords);
  // 1 does not end here: 9 is no longer before it. 2 3 does, 3 3 does not.
  Step(&search, {{0.1, 0.3, 0.1, 0.5}, {0.1, 0.1, 0.2, 0.6}});
  EXPECT_EQ(TokensOf(search), (Ids{3, 1}));
  EXPECT_EQ(ParentsOf(search), (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(search.Best()[1].output_ids, (Ids{2, 3}));
  EXPECT_NEAR(std::exp(search.Best()[1].cum_log_prob), 0.15, 1e-6);
  EXPECT_EQ(search.Best()[1].output_log_probs.size(), 2u);
}

TEST(BeamSearchTest, SeveralEndIdsLeaveEnoughContinuations) {
  BeamRule rule = Rule(2);
  rule.stop.end_ids = {0, 1, 2};
  EXPECT_EQ(rule.num_candidates(), 8);
  BeamSearch search(rule, Ids{9});
  Step(&search, {{0.3, 0.25, 0.2, 0.15, 0.1}});
  EXPECT_EQ(TokensOf(search), (Ids{3, 4})) << "0 and 1 end, 2 is passed over";
}

TEST(BeamSearchTest, WhatIsBannedNeverLives) {
  BeamSearch search(Rule(3), Ids{9});
  Step(&search, {{0.0, 1.0, 0.0, 0.0}});
  EXPECT_EQ(search.cum_log_probs().size(), 1u);
  EXPECT_EQ(TokensOf(search), (Ids{1, 1, 1})) << "the others repeat the only one that lives";
  Step(&search, {{0.0, 0.25, 0.75, 0.0}});
  EXPECT_EQ(search.cum_log_probs().size(), 2u);
  EXPECT_EQ(TokensOf(search), (Ids{2, 1, 2}));
  Step(&search, {{1.0, 0.0, 0.0, 0.0}, {1.0, 0.0, 0.0, 0.0}});
  EXPECT_TRUE(search.is_done()) << "nobody lives";
  EXPECT_EQ(search.Best().size(), 2u);
}

TEST(BeamSearchTest, RowsWithoutANumberEndTheSearch) {
  BeamSearch search(Rule(2), Ids{9});
  std::vector<BeamCandidate> candidates;
  const std::vector<float> logits(4, std::numeric_limits<float>::quiet_NaN());
  BestContinuations(logits, 0, 0, 4, &candidates);
  EXPECT_TRUE(candidates.empty());
  search.Advance(&candidates);
  EXPECT_TRUE(search.is_done());
  EXPECT_TRUE(search.Best().empty());
}

TEST(BeamSearchTest, TiesGoToTheLowerToken) {
  std::vector<BeamCandidate> candidates;
  BestContinuations(std::vector<float>{1, 2, 1, 2, 2, 1}, 0, 0, 4, &candidates);
  Ids tokens;
  for (const BeamCandidate& candidate : candidates) tokens.push_back(candidate.token);
  std::sort(tokens.begin(), tokens.end());
  EXPECT_EQ(tokens, (Ids{0, 1, 3, 4}));
}

TEST(BeamSearchTest, OfARowWhoseBestLogitsAreKnownTheContinuationsAreTheSame) {
  struct {
    BestLogits head{.sum_of_exps = 1 + std::exp(-1.0) + std::exp(-3.0), .max = 4, .num_entries = 2};
    std::array<BestLogits::Entry, 2> entries{{{.id = 2, .logit = 4}, {.id = 0, .logit = 3}}};
  } best;
  ASSERT_EQ(sizeof(best), BestLogits::Bytes(2));
  std::vector<BeamCandidate> got, want;
  BestContinuations(best.head, /*beam=*/1, /*cum=*/-2, &got);
  BestContinuations(std::vector<float>{3, 1, 4}, /*beam=*/1, /*cum=*/-2, /*count=*/2, &want);
  std::ranges::sort(want, {}, [](const BeamCandidate& c) { return -c.cum_log_prob; });
  ASSERT_EQ(got.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got[i].beam, 1);
    EXPECT_EQ(got[i].token, want[i].token);
    EXPECT_FLOAT_EQ(got[i].cum_log_prob, want[i].cum_log_prob);
  }
  EXPECT_NEAR(got[1].cum_log_prob, -3 - std::log(1 + std::exp(-1.0) + std::exp(-3.0)), 1e-6);
}

// --- a search that prunes nothing finds what enumeration finds ---

constexpr int kVocab = 3;
constexpr int kMaxTokens = 4;

// Probabilities of the token after `ids`.
Probabilities Next(const Ids& ids, unsigned seed) {
  std::seed_seq sequence(ids.begin(), ids.end());
  std::mt19937 random(sequence);
  random.seed(random() ^ seed);
  Probabilities p;
  double sum = 0;
  for (int t = 0; t < kVocab; ++t)
    sum += p.emplace_back(0.05 + static_cast<double>(random() % 997));
  for (double& x : p) x /= sum;
  return p;
}

struct Sequence {
  Ids ids;
  double log_p = 0;
  double score = 0;
};

void Enumerate(const Sequence& so_far, double length_penalty, unsigned seed,
               std::vector<Sequence>* all) {
  const int len = static_cast<int>(so_far.ids.size()) + 1;
  const Probabilities p = Next(so_far.ids, seed);
  for (TokenId t = 0; t < kVocab; ++t) {
    Sequence next = so_far;
    next.log_p += std::log(p[static_cast<size_t>(t)]);
    next.score = next.log_p / std::pow(len, length_penalty);
    if (t != kEnd) next.ids.push_back(t);
    if (t == kEnd || len == kMaxTokens) {
      all->push_back(next);
    } else {
      Enumerate(next, length_penalty, seed, all);
    }
  }
}

TEST(BeamSearchTest, ASearchThatPrunesNothingFindsTheBestOfAllSequences) {
  constexpr int kWidth = 81;  // 3 ^ 4
  for (unsigned seed = 0; seed < 20; ++seed) {
    for (const float length_penalty : {0.0F, 1.0F, 0.6F}) {
      BeamSearch search(Rule(kWidth, length_penalty, /*early_stopping=*/2, kMaxTokens), Ids{9});
      std::vector<Ids> live = {{}};
      while (!search.is_done()) {
        std::vector<Probabilities> rows;
        for (size_t b = 0; b < search.cum_log_probs().size(); ++b) {
          rows.push_back(Next(live[b], seed));
        }
        Step(&search, rows);
        std::vector<Ids> next;
        for (size_t j = 0; j < search.cum_log_probs().size(); ++j) {
          next.push_back(live[static_cast<size_t>(search.parents()[j])]);
          next.back().push_back(search.tokens()[j]);
        }
        live = next;
      }
      std::vector<Sequence> all;
      Enumerate({}, length_penalty, seed, &all);
      std::sort(all.begin(), all.end(),
                [](const Sequence& a, const Sequence& b) { return a.score > b.score; });
      const auto best = search.Best();
      ASSERT_EQ(best.size(), std::min<size_t>(all.size(), kWidth));
      for (size_t i = 0; i < 20; ++i) {
        EXPECT_EQ(best[i].output_ids, all[i].ids) << "seed " << seed << ", place " << i;
        EXPECT_NEAR(best[i].score, all[i].score, 1e-5);
        EXPECT_NEAR(best[i].cum_log_prob, all[i].log_p, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace inflight::decoding
