// SPDX-License-Identifier: Apache-2.0
// What requests are answered when the device, a slot or the room for blocks fails them.
#include <gtest/gtest.h>

#include "executor/step_loop_fixture.h"

namespace inflight::executor {
namespace {

using ::inflight::testing::HarnessOptions;
using ::inflight::testing::LoopHarness;
using ::inflight::testing::MakeRequest;
using ::inflight::testing::RecordingSink;

TEST_P(StepLoopTest, FailedLaunchFailsAllThatIsPendingAndAllThatComes) {
  HarnessOptions options = Small();
  options.backend.fail_launch_of_step = 4;
  LoopHarness harness(std::move(options));
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (uint64_t i = 1; i <= 6; ++i) {
    sinks.push_back(std::make_shared<RecordingSink>());
    harness.Enqueue(MakeRequest(3, 20, i), sinks.back());
  }
  harness.RunUntilIdle();
  EXPECT_TRUE(harness.loop.has_fault());
  sinks.push_back(std::make_shared<RecordingSink>());
  harness.Enqueue(MakeRequest(3, 20, 7), sinks.back());
  harness.RunUntilIdle();
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->num_final, 1);
    EXPECT_EQ(
        sink->last().status,
        Internal("Encountered an error in forwardAsync function: fake device: launch failed"));
    EXPECT_TRUE(sink->last().output_ids.empty());
  }
  EXPECT_EQ(harness.loop.stats().requests_failed, 7);
  EXPECT_EQ(harness.loop.stats().num_active_requests, 0);
  EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
}

TEST_P(StepLoopTest, FailedCollectFailsAllThatIsPending) {
  HarnessOptions options = Small();
  options.backend.fail_collect_of_step = 3;
  LoopHarness harness(std::move(options));
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(MakeRequest(3, 20), sink);
  harness.RunUntilIdle();
  EXPECT_TRUE(harness.loop.has_fault());
  EXPECT_EQ(sink->num_final, 1);
  EXPECT_EQ(sink->last().status.code(), StatusCode::kInternal);
}

TEST_P(StepLoopTest, SlotThatCannotBeSetUpFailsItsRequestAlone) {
  HarnessOptions options = Small();
  options.backend.fail_setup_of_seed = 2;
  LoopHarness harness(std::move(options));
  std::vector<std::pair<Request, std::shared_ptr<RecordingSink>>> clients;
  for (uint64_t i = 1; i <= 5; ++i) {
    clients.emplace_back(MakeRequest(3, 6, i), std::make_shared<RecordingSink>());
    harness.Enqueue(clients.back().first, clients.back().second);
  }
  harness.RunUntilIdle();
  for (const auto& [request, sink] : clients) {
    if (request.sampling.seed != 2) {
      ExpectWhole(harness, request, *sink);
    } else {
      EXPECT_EQ(sink->num_final, 1);
      EXPECT_EQ(sink->last().status, ResourceExhausted("fake device: no room"));
    }
  }
  EXPECT_FALSE(harness.loop.has_fault());
  EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
}

TEST_P(StepLoopTest, RequestThatCanNeverFitFailsInsteadOfWaiting) {
  HarnessOptions options = Small();
  options.backend.info.kv_groups[0].num_blocks = 4;  // CreateExecutor would lower max_seq_len
  LoopHarness harness(std::move(options));
  auto big = std::make_shared<RecordingSink>();
  auto bigger = std::make_shared<RecordingSink>();
  harness.Enqueue(MakeRequest(10, 20, 1), big);
  harness.Enqueue(MakeRequest(10, 21, 1), bigger);
  const Request small = MakeRequest(3, 4, 2);
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(small, sink);
  harness.RunUntilIdle();
  for (const auto& failed : {big, bigger}) {
    EXPECT_EQ(failed->num_final, 1);
    EXPECT_EQ(failed->last().status.code(), StatusCode::kResourceExhausted);
  }
  ExpectWhole(harness, small, *sink);
}

}  // namespace
}  // namespace inflight::executor
