// SPDX-License-Identifier: Apache-2.0
// The step loop allocates nothing in steady state: operator new of this binary counts.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "simulation/heap.h"
#include "simulation/loop_harness.h"

namespace inflight::testing {
namespace {

class AllocationTest : public ::testing::TestWithParam<std::tuple<int, SchedulerPolicy>> {};

INSTANTIATE_TEST_SUITE_P(DepthsAndPolicies, AllocationTest,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(SchedulerPolicy::kGuaranteedNoEvict,
                                                              SchedulerPolicy::kMaxUtilization,
                                                              SchedulerPolicy::kStaticBatch)));

TEST_P(AllocationTest, SteadyStepAllocatesNothing) {
  constexpr int kSequences = 64;
  HarnessOptions options;
  options.backend.info = {.depth = std::get<0>(GetParam()),
                          .max_slots = kSequences + 2,
                          .max_batch_size = kSequences,
                          .max_num_tokens = 512,
                          .max_seq_len = 600,
                          .max_input_len = 500,
                          .vocab_size = 97,
                          .kv_groups = {{.block_size = 16, .num_blocks = 4096, .window = 0}}};
  options.scheduler_policy = std::get<1>(GetParam());
  options.max_queue_size = kSequences + 1;
  LoopHarness harness(std::move(options));
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < kSequences + 1; ++i) {  // the last one waits for a slot all the time
    Request request;
    request.input_ids.resize(20);
    std::iota(request.input_ids.begin(), request.input_ids.end(), i % 70);
    request.max_tokens = 500;
    request.streaming = true;
    request.timeout_ms = 1'000'000;
    request.output.return_log_probs = true;
    request.sampling.seed = static_cast<uint64_t>(i);
    sinks.push_back(std::make_shared<RecordingSink>());
    ASSERT_NE(harness.Enqueue(request, sinks.back()), 0u);
  }
  for (int i = 0; i < 50; ++i) harness.Step();
  ASSERT_EQ(harness.loop.stats().num_generation_requests, kSequences);
  int64_t allocated = 0;
  for (int i = 0; i < 300; ++i) {  // several new blocks for each sequence
    const int64_t before = num_allocations;
    harness.loop.Step();
    allocated += num_allocations - before;
    harness.streams.Pump();  // the stream thread's part builds responses and may allocate
  }
  EXPECT_EQ(allocated, 0);
  EXPECT_EQ(harness.loop.stats().num_generation_requests, kSequences) << "it was steady throughout";
  EXPECT_EQ(harness.backend.violation(), "");
  EXPECT_GT(sinks[0]->ids.size(), 300u);
}

TEST(AllocationCounterTest, Counts) {
  const int64_t before = num_allocations;
  auto sink = std::make_unique<RecordingSink>();
  EXPECT_EQ(num_allocations, before + 1);
}

}  // namespace
}  // namespace inflight::testing
