// SPDX-License-Identifier: Apache-2.0
// The step loop makes the masks of guided sequences for a backend that takes them late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  options.backend.info.takes_guides = options.backend.info.wants_guide_masks = true;
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

}  // namespace
}  // namespace inflight::executor
