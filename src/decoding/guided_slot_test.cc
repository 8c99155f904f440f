// SPDX-License-Identifier: Apache-2.0
// What a guide leaves of a row, and what the sampler draws of it. Guides are lists of tokens, so
// that each expectation can be read off the list.
#include "decoding/guided_slot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "decoding/list_guide.h"
#include "decoding/sampler.h"

namespace inflight::decoding {
namespace {

constexpr int kVocabSize = 40;  // more than a word of a mask
constexpr TokenId kEnd = 39;
constexpr float kInf = std::numeric_limits<float>::infinity();

Request Guided(std::shared_ptr<const Guide> guide) {
  Request request;
  request.input_ids = {1, 2};
  request.end_ids = {kEnd};
  request.guide = std::move(guide);
  return request;
}

std::vector<float> RisingLogits() {
  std::vector<float> logits(kVocabSize);
  for (int i = 0; i < kVocabSize; ++i) logits[static_cast<size_t>(i)] = static_cast<float>(i);
  return logits;
}

// A slot that has generated `output`, and what it draws next of logits that rise with the id.
struct Drawn {
  SampledToken token;
  std::vector<float> logits;
};
Drawn DrawAfter(const Request& request, std::vector<TokenId> output) {
  Sampler sampler(1, kVocabSize, 1);
  std::vector<TokenId> tokens = request.input_ids;
  tokens.insert(tokens.end(), output.begin(), output.end());
  sampler.Setup(0, MakeSamplingRule(request, 7, 2), tokens, 100);
  Drawn drawn{.token = {}, .logits = RisingLogits()};
  drawn.token = sampler.Sample(0, tokens, drawn.logits.data());
  return drawn;
}

TEST(GuidedSlotTest, OnlyWhatTheGuideAllowsIsDrawn) {
  const Request request = Guided(MakeListGuide(38, {{3, 5}, {33, 4}}));
  const Drawn first = DrawAfter(request, {});
  EXPECT_EQ(first.token.id, 33);
  for (int i = 0; i < kVocabSize; ++i)
    EXPECT_EQ(first.logits[static_cast<size_t>(i)] > -kInf, i == 3 || i == 33) << i;
  EXPECT_EQ(DrawAfter(request, {3}).token.id, 5);
}

TEST(GuidedSlotTest, EndIdsComeWhereTheTextIsWhole) {
  const Request request = Guided(MakeListGuide(38, {{3}, {3, 5}}));
  EXPECT_EQ(DrawAfter(request, {}).token.id, 3);
  const Drawn behind = DrawAfter(request, {3});  // 39 is likelier than 5
  EXPECT_EQ(behind.token.id, kEnd);
  EXPECT_GT(behind.logits[5], -kInf);
  EXPECT_EQ(DrawAfter(request, {3, 5}).token.id, kEnd);
}

// An end id that is a token of the text as well still ends it.
TEST(GuidedSlotTest, EndIdsWithATextEndTheAnswerAlone) {
  Request request = Guided(MakeListGuide(38, {{3, 5}, {4}}));
  request.end_ids = {5, 4};
  EXPECT_EQ(DrawAfter(request, {}).token.id, 3);
  EXPECT_EQ(DrawAfter(request, {3}).token.verdict, GuideVerdict::kNone);
}

TEST(GuidedSlotTest, WithoutEndIdsTheSequenceEndsWhereNothingMayFollow) {
  Request request = Guided(MakeListGuide(38, {{3}, {3, 5}}));
  request.end_ids.clear();
  EXPECT_EQ(DrawAfter(request, {3}).token.id, 5);
  const SampledToken end = DrawAfter(request, {3, 5}).token;
  EXPECT_EQ(end.verdict, GuideVerdict::kEnd);
  EXPECT_TRUE(StatusOf(end.verdict).ok());
}

TEST(GuidedSlotTest, WhatIsAllowedAndBannedIsNotDrawnAndNothingElseIs) {
  Request request = Guided(MakeListGuide(38, {{3}}));
  request.bad_words = {{3}};
  const SampledToken none = DrawAfter(request, {}).token;
  EXPECT_EQ(none.verdict, GuideVerdict::kNone);
  EXPECT_EQ(StatusOf(none.verdict).field(), "guide");
  // Beams that have no guide have no token where all are banned.
  const Status banned = StatusOf(none.verdict, /*is_guided=*/false);
  EXPECT_EQ(banned.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(banned.field(), "");
  EXPECT_EQ(banned.message().find("guide"), std::string::npos) << banned.message();
  request.bad_words = {{7}};
  EXPECT_EQ(DrawAfter(request, {}).token.id, 3);
}

TEST(GuidedSlotTest, NotANumberIsNoTokenThatMayCome) {
  const Request request = Guided(MakeListGuide(38, {{3}}));
  Sampler sampler(1, kVocabSize, 1);
  sampler.Setup(0, MakeSamplingRule(request, 7, 2), request.input_ids, 100);
  std::vector<float> logits = RisingLogits();
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(sampler.Sample(0, request.input_ids, logits.data()).verdict, GuideVerdict::kNone);
}

TEST(GuidedSlotTest, MinTokensKeepsTheEndAwayUnlessNothingElseMayCome) {
  Request request = Guided(MakeListGuide(38, {{3}, {3, 5}}));
  request.sampling.min_tokens = 5;
  EXPECT_EQ(DrawAfter(request, {3}).token.id, 5);
  EXPECT_EQ(DrawAfter(request, {3, 5}).token.id, kEnd);
}

// P(3) : P(5) = 1 : e^2 of logits that rise by one.
TEST(GuidedSlotTest, LogProbsAreThoseOfTheTokensThatMayCome) {
  Request request = Guided(MakeListGuide(38, {{3}, {5}}));
  request.output.return_log_probs = true;
  const SampledToken token = DrawAfter(request, {}).token;
  EXPECT_EQ(token.id, 5);
  EXPECT_NEAR(token.log_prob, -std::log1p(std::exp(-2.0)), 1e-6);
  EXPECT_NEAR(token.log_prob_all, -std::log1p(std::exp(-2.0)), 1e-6);
}

TEST(GuidedSlotTest, TokensMayComeOneAfterAnotherUpToAnEnd) {
  const Request request = Guided(MakeListGuide(38, {{3}, {3, 5, 7}}));
  GuidedSlot slot(*request.guide, request.end_ids, /*generated=*/{});
  const auto num = [&slot](const std::vector<TokenId>& tokens) {
    return slot.NumThatMayCome(tokens);
  };
  EXPECT_EQ(num({}), 0U);
  EXPECT_EQ(num({5}), 0U);
  EXPECT_EQ(num({3, 5, 7, 9}), 3U);
  EXPECT_EQ(num({3, kEnd, 5, 7}), 2U) << "nothing comes behind an end";
  EXPECT_EQ(num({3, 5, kEnd}), 2U);
  EXPECT_TRUE(slot.Accept(3));
  EXPECT_EQ(num({5, 7}), 2U) << "it stands where it was";
  EXPECT_TRUE(slot.Accept(kEnd));
  std::vector<uint32_t> allowed(2);
  EXPECT_EQ(slot.FindAllowed(allowed), GuideVerdict::kEnd);
  EXPECT_FALSE(slot.Accept(kEnd));
}

TEST(GuidedSlotTest, DrawsAtRandomNeverLeaveTheGuide) {
  for (const bool is_top_k : {true, false}) {
    Request request = Guided(MakeListGuide(38, {{3}, {5}, {33}}));
    request.sampling.temperature = 50.0F;
    if (is_top_k) {
      request.sampling.top_k = 10;
    } else {
      request.sampling.top_p = 0.999F;
    }
    std::vector<int> counts(kVocabSize);
    for (uint64_t seed = 0; seed < 300; ++seed) {
      Sampler sampler(1, kVocabSize, 1);
      sampler.Setup(0, MakeSamplingRule(request, seed, 2), request.input_ids, 100);
      std::vector<float> logits = RisingLogits();
      const auto id = sampler.Sample(0, request.input_ids, logits.data()).id;
      ++counts[static_cast<size_t>(id)];
    }
    EXPECT_EQ(counts[3] + counts[5] + counts[33], 300);
    EXPECT_GT(counts[3], 30);
    EXPECT_GT(counts[5], 30);
  }
}

TEST(GuidedSlotTest, AMaskPastItsBoundOfWorkIsNoMask) {
  const Request request = Guided(std::make_shared<ListGuide>(
      ListGuideOptions{.num_tokens = 38, .lists = {{3, 5, 7}}, .num_masks = 1}));
  EXPECT_EQ(DrawAfter(request, {}).token.id, 3);
  const SampledToken lost = DrawAfter(request, {3}).token;
  EXPECT_EQ(lost.verdict, GuideVerdict::kTooMuchWork);
  EXPECT_FALSE(StatusOf(lost.verdict).ok());
}

TEST(GuidedSlotTest, ATokenThatMayNotComeEndsAll) {
  const auto guide = MakeListGuide(38, {{3, 5}});
  GuidedSlot slot(*guide, {}, {});
  EXPECT_TRUE(slot.Accept(3));
  EXPECT_FALSE(slot.Accept(4));
  EXPECT_FALSE(slot.Accept(5));
  std::vector<uint32_t> allowed(2);
  EXPECT_EQ(slot.FindAllowed(allowed), GuideVerdict::kNone);
}

TEST(GuidedSlotTest, AnEndIdMayComeWhereTheTextIsWhole) {
  const auto guide = MakeListGuide(38, {{3}});
  const std::vector<TokenId> ends = {kEnd};
  GuidedSlot early(*guide, ends, {});
  EXPECT_FALSE(early.Accept(kEnd));
  GuidedSlot whole(*guide, ends, {});
  EXPECT_TRUE(whole.Accept(3));
  EXPECT_TRUE(whole.Accept(kEnd));
}

TEST(GuidedSlotTest, ACloneGoesItsOwnWay) {
  const auto guide = MakeListGuide(38, {{3, 5}, {3, 33}});
  GuidedSlot slot(*guide, {}, {});
  slot.Accept(3);
  const auto clone = slot.Clone();
  EXPECT_TRUE(clone->Accept(33));
  std::vector<uint32_t> allowed(2);
  EXPECT_EQ(slot.FindAllowed(allowed), GuideVerdict::kTokens);
  EXPECT_EQ(allowed, (std::vector<uint32_t>{1U << 5, 1U << 1}));
  EXPECT_EQ(clone->FindAllowed(allowed), GuideVerdict::kEnd);
}

TEST(GuidedSlotTest, ASlotThatRestartsStandsWhereItIsTold) {
  const Request request = Guided(MakeListGuide(38, {{3, 5}, {4, 6}}));
  Sampler sampler(2, kVocabSize, 1);
  const SamplingRule rule = MakeSamplingRule(request, 7, 2);
  sampler.Setup(0, rule, request.input_ids, 100);
  sampler.Setup(1, rule, request.input_ids, 100);
  sampler.Append(0, 3);
  const std::vector<TokenId> tokens = {1, 2, 3};
  sampler.Restart(1, tokens, 100, sampler.CloneGuide(0));
  std::vector<float> logits = RisingLogits();
  EXPECT_EQ(sampler.Sample(1, tokens, logits.data()).id, 5);
}

}  // namespace
}  // namespace inflight::decoding
