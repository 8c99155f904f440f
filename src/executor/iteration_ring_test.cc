// SPDX-License-Identifier: Apache-2.0
// The ring itself, and what a step loop puts into it.
#include "executor/iteration_ring.h"

#include <gtest/gtest.h>

#include <thread>

#include "simulation/loop_harness.h"

namespace inflight::executor {
namespace {

using ::inflight::testing::HarnessOptions;
using ::inflight::testing::LoopHarness;
using ::inflight::testing::MakeRequest;
using ::inflight::testing::RecordingSink;
using ::inflight::testing::SmallInfo;

ExecutorStats Numbered(int64_t num_steps) {
  ExecutorStats stats;
  stats.num_steps = num_steps;
  return stats;
}

std::vector<int64_t> Take(IterationRing& ring) {
  std::vector<ExecutorStats> records;
  ring.Take(&records);
  std::vector<int64_t> numbers;
  for (const ExecutorStats& record : records) numbers.push_back(record.num_steps);
  return numbers;
}

TEST(IterationRing, IsTakenInOrderAndOnce) {
  IterationRing ring(4);
  EXPECT_TRUE(Take(ring).empty());
  for (int i = 0; i < 3; ++i) ring.Push(Numbered(i));
  EXPECT_EQ(Take(ring), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(Take(ring).empty());
}

TEST(IterationRing, TheOldestGiveWay) {
  IterationRing ring(3);
  for (int i = 0; i < 10; ++i) ring.Push(Numbered(i));
  EXPECT_EQ(Take(ring), (std::vector<int64_t>{7, 8, 9}));
  ring.Push(Numbered(10));
  EXPECT_EQ(Take(ring), (std::vector<int64_t>{10}));
}

TEST(IterationRing, OfNoCapacityKeepsNothing) {
  IterationRing ring(0);
  ring.Push(Numbered(1));
  EXPECT_TRUE(Take(ring).empty());
}

TEST(IterationRing, ReaderBesideTheWriterSeesEachRecordAtMostOnceAndWhole) {
  constexpr int64_t kNumPushed = 20000;
  IterationRing ring(8);
  std::thread writer([&] {
    for (int64_t i = 1; i <= kNumPushed; ++i) {
      ExecutorStats stats = Numbered(i);
      stats.heartbeat_ns = -i;  // the last field
      ring.Push(stats);
    }
  });
  int64_t last = 0;
  std::vector<ExecutorStats> records;
  while (last < kNumPushed) {
    records.clear();
    ring.Take(&records);
    for (const ExecutorStats& record : records) {
      EXPECT_GT(record.num_steps, last);
      EXPECT_EQ(record.heartbeat_ns, -record.num_steps);
      last = record.num_steps;
    }
  }
  writer.join();
  EXPECT_TRUE(Take(ring).empty());
}

class IterationRecordsTest : public ::testing::TestWithParam<int> {
 protected:
  HarnessOptions Options() const {
    HarnessOptions options;
    options.backend.info = SmallInfo(GetParam());
    options.backend.info.cpu_memory_bytes = 1234;
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Depths, IterationRecordsTest, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return "Depth" + std::to_string(info.param); });

TEST_P(IterationRecordsTest, OneForEachStepAndOneWithoutRowsAtTheEnd) {
  LoopHarness harness(Options());
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(MakeRequest(/*prompt_len=*/5, /*max_tokens=*/4), sink);
  harness.RunUntilIdle();
  std::vector<ExecutorStats> records;
  harness.loop.TakeIterationStats(&records);
  ASSERT_EQ(records.size(), 5U);  // a prompt and three decode steps, then none
  for (int i = 0; i < 4; ++i) {
    const ExecutorStats& record = records[static_cast<size_t>(i)];
    EXPECT_EQ(record.num_steps, i + 1);
    EXPECT_EQ(record.num_scheduled_requests, 1);
    EXPECT_EQ(record.num_context_requests, i == 0 ? 1 : 0);
    EXPECT_EQ(record.num_generation_requests, i == 0 ? 0 : 1);
    EXPECT_EQ(record.num_context_tokens, i == 0 ? 5 : 0);
    EXPECT_EQ(record.num_active_requests, i < 3 ? 1 : 0) << "as of the end of the turn";
    EXPECT_EQ(record.kv_blocks_used + record.kv_blocks_free, record.kv_blocks_max);
    EXPECT_EQ(record.cpu_memory_bytes, 1234);
    EXPECT_EQ(record.requests_started, 1);
    EXPECT_EQ(record.rows_decoded, i + 1);
    EXPECT_GT(record.last_step_ns, 0);
  }
  const ExecutorStats& idle = records.back();
  EXPECT_EQ(idle.num_steps, 4);
  EXPECT_EQ(idle.num_active_requests, 0);
  EXPECT_EQ(idle.num_scheduled_requests, 0);
  EXPECT_EQ(idle.num_generation_requests, 0);
  EXPECT_EQ(idle.kv_blocks_used, 0);
  EXPECT_EQ(idle.tokens_generated, 4);
  EXPECT_EQ(idle.last_step_ns, 0);
}

TEST_P(IterationRecordsTest, IdleLoopAddsNothing) {
  LoopHarness harness(Options());
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(MakeRequest(5, 2), sink);
  harness.RunUntilIdle();
  std::vector<ExecutorStats> records;
  harness.loop.TakeIterationStats(&records);
  records.clear();
  for (int i = 0; i < 3; ++i) harness.Step();
  harness.loop.TakeIterationStats(&records);
  EXPECT_TRUE(records.empty());
}

TEST_P(IterationRecordsTest, CancelBetweenStepsEndsInAnIdleRecord) {
  LoopHarness harness(Options());
  auto sink = std::make_shared<RecordingSink>();
  const RequestId id = harness.Enqueue(MakeRequest(5, 30), sink);
  for (int i = 0; i < 6; ++i) harness.Step();
  harness.inbox.Cancel(id);
  harness.RunUntilIdle();
  std::vector<ExecutorStats> records;
  harness.loop.TakeIterationStats(&records);
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records.back().num_active_requests, 0);
  EXPECT_EQ(records.back().num_scheduled_requests, 0);
  EXPECT_EQ(records.back().kv_blocks_used, 0);
  EXPECT_EQ(records.back().requests_cancelled, 1);
}

}  // namespace
}  // namespace inflight::executor
