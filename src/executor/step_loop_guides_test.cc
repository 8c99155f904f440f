// SPDX-License-Identifier: Apache-2.0
// The step loop makes the masks of guided sequences for a backend that takes them late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "decoding/list_guide.h"
#include "executor/step_loop.h"
#include "executor/step_loop_fixture.h"

namespace inflight::executor {
namespace {

using ::inflight::testing::HarnessOptions;
using ::inflight::testing::LoopHarness;
using ::inflight::testing::MakeRequest;
using ::inflight::testing::RecordingSink;

class GuidedStepsTest : public StepLoopTest {};
INSTANTIATE_TEST_SUITE_P(Depths, GuidedStepsTest, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return "Depth" + std::to_string(info.param); });

HarnessOptions WithGuides(HarnessOptions options) {
  options.backend.info.wants_guide_masks = true;
  return options;
}

// The device draws among the tokens of masks, which are made of all earlier tokens.
TEST_P(GuidedStepsTest, GuidedSequencesGetTheirMasksWhileTheForwardPassRuns) {
  LoopHarness harness(WithGuides(Small()));
  const std::vector<std::vector<TokenId>> ways = {{5, 60, 7, 80}, {5, 6, 7}, {90, 1, 2}};
  std::vector<std::shared_ptr<RecordingSink>> guided;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Request request = MakeRequest(3, 8, seed);
    request.guide = decoding::MakeListGuide(97, ways);
    guided.push_back(std::make_shared<RecordingSink>());
    harness.Enqueue(request, guided.back());
  }
  const Request plain = MakeRequest(3, 8, 9);
  auto free = std::make_shared<RecordingSink>();
  harness.Enqueue(plain, free);
  harness.RunUntilIdle();
  EXPECT_EQ(harness.backend.violation(), "");
  ExpectWhole(harness, plain, *free);
  for (const auto& sink : guided) {
    EXPECT_THAT(ways, ::testing::Contains(sink->ids));
    EXPECT_TRUE(sink->last().status.ok()) << sink->last().status.ToString();
    EXPECT_EQ(sink->last().finish_reason, FinishReason::kEndId) << "nothing may follow";
  }
}

TEST_P(GuidedStepsTest, AGuidedSequenceEndsByItsEndId) {
  LoopHarness harness(WithGuides(Small()));
  Request request = MakeRequest(3, 8, 1);
  request.guide = decoding::MakeListGuide(90, {{5, 6, 7}});
  request.end_ids = {96};
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(request, sink);
  harness.RunUntilIdle();
  EXPECT_EQ(sink->ids, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(sink->last().finish_reason, FinishReason::kEndId);
}

TEST_P(GuidedStepsTest, AGuideThatLeavesNothingFailsItsRequestAlone) {
  LoopHarness harness(WithGuides(Small()));
  Request lost = MakeRequest(3, 8, 1);
  lost.guide = std::make_shared<decoding::ListGuide>(
      decoding::ListGuideOptions{.num_tokens = 97, .lists = {{5, 6, 7}}, .num_masks = 2});
  const Request plain = MakeRequest(3, 8, 9);
  auto failed = std::make_shared<RecordingSink>();
  auto whole = std::make_shared<RecordingSink>();
  harness.Enqueue(lost, failed);
  harness.Enqueue(plain, whole);
  harness.RunUntilIdle();
  EXPECT_EQ(failed->last().status.field(), "guide");
  EXPECT_EQ(failed->num_final, 1);
  ExpectWhole(harness, plain, *whole);
  EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
}

// --- drafts ---

using Ways = std::vector<std::vector<TokenId>>;

// Who proposes knows the first way through a list that a text is on, and puts a wrong token at
// every fourth place of a text.
std::vector<TokenId> GuessByWays(const Ways& ways, std::span<const TokenId> tokens, int most) {
  constexpr size_t kPromptLen = 3;
  const auto output = tokens.subspan(kPromptLen);
  std::vector<TokenId> drafts;
  for (const auto& way : ways) {
    if (way.size() < output.size() ||
        !std::ranges::equal(output, std::span(way).first(output.size())))
      continue;
    for (size_t at = output.size(); at < way.size() && std::ssize(drafts) < most; ++at)
      drafts.push_back(at % 4 == 3 ? 96 : way[at]);
    break;
  }
  if (std::ssize(drafts) < most) drafts.push_back(drafts.empty() ? 1 : drafts.back());
  return drafts;
}

HarnessOptions WithDrafts(HarnessOptions options, const Ways& ways) {
  options.backend.info.makes_drafts = true;
  options.backend.info.max_tokens_per_row = 4;
  options.backend.guess = [ways](std::span<const TokenId> tokens, int most) {
    return GuessByWays(ways, tokens, most);
  };
  return options;
}

const Ways kWays = {{5, 60, 7, 80, 9, 10, 11}, {5, 60, 7, 81, 12}, {5, 6, 7}, {90, 1, 2, 3, 4, 8}};

std::vector<std::shared_ptr<RecordingSink>> RunGuided(LoopHarness& harness,
                                                      const Request& request) {
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Request one = request;
    one.input_ids = MakeRequest(3, 8, seed).input_ids;
    one.sampling.seed = seed;
    one.streaming = seed % 2 == 0;
    one.output.return_log_probs = true;
    sinks.push_back(std::make_shared<RecordingSink>());
    EXPECT_NE(harness.Enqueue(one, sinks.back()), 0U);
  }
  harness.RunUntilIdle();
  EXPECT_EQ(harness.backend.violation(), "");
  EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
  return sinks;
}

void ExpectSame(const RecordingSink& actual, const RecordingSink& expected) {
  EXPECT_EQ(actual.ids, expected.ids);
  EXPECT_EQ(actual.log_probs, expected.log_probs);
  EXPECT_EQ(actual.last().status, expected.last().status);
  EXPECT_EQ(actual.last().finish_reason, expected.last().finish_reason);
  EXPECT_EQ(actual.last().cum_log_prob, expected.last().cum_log_prob);
  EXPECT_EQ(actual.num_final, 1);
}

// With drafts and without, for whatever a sequence ends: the way, an end id, its length, a mask
// that is too much work, a stop word.
TEST_P(GuidedStepsTest, EachDraftHasTheMaskOfThePlaceBehindIt) {
  Request by_way = MakeRequest(3, 8, 1);
  by_way.guide = decoding::MakeListGuide(97, kWays);
  std::vector<Request> kinds(5, by_way);
  kinds[1].end_ids = {95};
  kinds[2].max_tokens = 4;
  kinds[3].guide = std::make_shared<decoding::ListGuide>(
      decoding::ListGuideOptions{.num_tokens = 97, .lists = kWays, .num_masks = 4});
  kinds[4].stop_words = {{7, 80}, {2, 3}};
  int64_t num_accepted = 0;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    SCOPED_TRACE("kind " + std::to_string(kind));
    LoopHarness plain(WithGuides(Small()));
    const auto expected = RunGuided(plain, kinds[kind]);
    LoopHarness harness(WithDrafts(WithGuides(Small()), kWays));
    const auto actual = RunGuided(harness, kinds[kind]);
    for (size_t i = 0; i < expected.size(); ++i) ExpectSame(*actual[i], *expected[i]);
    const ExecutorStats stats = harness.loop.stats();
    EXPECT_LE(stats.num_steps, plain.loop.stats().num_steps);
    EXPECT_GT(stats.tokens_drafted, stats.drafts_accepted);
    int told = 0;
    for (const auto& sink : actual) told += sink->last().num_accepted_draft_tokens;
    if (kind != 3) {
      EXPECT_EQ(told, stats.drafts_accepted);  // a request that fails tells nothing
    }
    num_accepted += stats.drafts_accepted;
  }
  EXPECT_GT(num_accepted, 40);
}

// The tokens before it were streamed, as of a sequence without drafts.
TEST_P(GuidedStepsTest, WhatFailsAmongDraftsFailsBehindThoseThatMayCome) {
  LoopHarness harness(WithDrafts(WithGuides(Small()), {{5, 6, 7, 8}}));
  Request request = MakeRequest(3, 8, 1);
  request.streaming = true;
  request.guide = std::make_shared<decoding::ListGuide>(
      decoding::ListGuideOptions{.num_tokens = 97, .lists = {{5, 6, 7, 8}}, .num_masks = 3});
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(request, sink);
  harness.RunUntilIdle();
  EXPECT_EQ(sink->ids, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(sink->last().status.field(), "guide");
  EXPECT_EQ(sink->num_final, 1);
}

}  // namespace
}  // namespace inflight::executor
