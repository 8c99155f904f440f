// SPDX-License-Identifier: Apache-2.0
// What a capacity policy costs and gains, on the simulated clock: the same requests, all there from
// the beginning, once under each policy. A step takes 1 ms and 20 us for each prompt token, so what
// a pause computes again is paid for.
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "simulation/loop_harness.h"

namespace inflight::testing {
namespace {

using enum SchedulerPolicy;

constexpr int kNumRequests = 300;

struct Workload {
  int prompt_len;
  int max_tokens;              // allowed
  int min_output, max_output;  // actual, by an end id
};

struct Outcome {
  double tokens_per_step = 0;
  double tokens_per_s = 0;
  ExecutorStats stats;
};

executor::BackendInfo Info() {
  return {.depth = 1,
          .max_slots = 32,
          .max_batch_size = 32,
          .max_num_tokens = 512,
          .max_seq_len = 1024,
          .max_input_len = 512,
          .vocab_size = 32000,
          .kv_groups = {{.block_size = 16, .num_blocks = 256, .window = 0}}};
}

Outcome RunAll(const Workload& workload, SchedulerPolicy policy) {
  LoopHarness harness({.backend = {.info = Info(), .prefill_token_ns = 20'000},
                       .scheduler_policy = policy,
                       .max_queue_size = kNumRequests});
  std::mt19937_64 random(7);
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
  };
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  int64_t num_tokens = 0;
  for (int i = 0; i < kNumRequests; ++i) {
    Request request;
    request.input_ids.resize(static_cast<size_t>(workload.prompt_len));
    for (TokenId& token : request.input_ids) token = between(0, 31999);
    request.max_tokens = workload.max_tokens;
    request.sampling.seed = static_cast<uint64_t>(i);
    const auto expected = ExpectedOutput(request, 32000);
    const int length = between(workload.min_output, workload.max_output);
    if (length < workload.max_tokens) request.end_ids = {expected.ids[static_cast<size_t>(length)]};
    num_tokens += static_cast<int64_t>(ExpectedOutput(request, 32000).ids.size());
    sinks.push_back(std::make_shared<RecordingSink>());
    EXPECT_NE(harness.Enqueue(request, sinks.back()), 0U);
  }
  harness.RunUntilIdle();
  EXPECT_EQ(harness.backend.violation(), "");
  for (const auto& sink : sinks) EXPECT_EQ(sink->num_final, 1);
  const ExecutorStats stats = harness.loop.stats();
  const double seconds = static_cast<double>(harness.clock.NowNs()) / 1e9;
  Outcome outcome{
      .tokens_per_step = static_cast<double>(num_tokens) / static_cast<double>(stats.num_steps),
      .tokens_per_s = static_cast<double>(num_tokens) / seconds,
      .stats = stats};
  std::cout << "policy " << static_cast<int>(policy) << ": " << outcome.tokens_per_step
            << " tokens a step, " << outcome.tokens_per_s << " tokens/s, " << stats.num_pauses
            << " pauses, " << stats.tokens_recomputed << " tokens computed again\n";
  return outcome;
}

TEST(PolicyThroughputTest, MaxUtilizationGainsWhereOutputsAreShorterThanAllowed) {
  const Workload workload{
      .prompt_len = 100, .max_tokens = 600, .min_output = 40, .max_output = 120};
  const Outcome reserved = RunAll(workload, kGuaranteedNoEvict);
  const Outcome utilized = RunAll(workload, kMaxUtilization);
  EXPECT_GE(utilized.tokens_per_step, 1.3 * reserved.tokens_per_step);
  EXPECT_GE(utilized.tokens_per_s, 1.3 * reserved.tokens_per_s);
  EXPECT_EQ(reserved.stats.num_pauses, 0);
}

// Pauses are paid for with tokens computed again; what has to be computed again stays a small
// share.
TEST(PolicyThroughputTest, MaxUtilizationLosesLittleWhereOutputsAreAsLongAsAllowed) {
  const Workload workload{
      .prompt_len = 100, .max_tokens = 300, .min_output = 300, .max_output = 300};
  const Outcome reserved = RunAll(workload, kGuaranteedNoEvict);
  const Outcome utilized = RunAll(workload, kMaxUtilization);
  EXPECT_GT(utilized.stats.num_pauses, 0);
  EXPECT_GE(utilized.tokens_per_s, 0.9 * reserved.tokens_per_s);
}

TEST(PolicyThroughputTest, JoiningARunningBatchBeatsWaitingForItsEnd) {
  const Workload workload{
      .prompt_len = 100, .max_tokens = 600, .min_output = 40, .max_output = 120};
  const Outcome waiting = RunAll(workload, kStaticBatch);
  const Outcome joining = RunAll(workload, kGuaranteedNoEvict);
  EXPECT_GT(joining.tokens_per_step, waiting.tokens_per_step);
}

}  // namespace
}  // namespace inflight::testing
