// SPDX-License-Identifier: Apache-2.0
// Pause and resume on a real model: the demo model's answers under memory pressure are those of an
// executor with room for everybody, bit for bit.
#include <gtest/gtest.h>

#include <random>

#include "builder/builder.h"
#include "constants.h"
#include "run_requests.h"

namespace inflight::golden {
namespace {

// Greedy and sampled, with and without penalties.
std::vector<Request> RequestsToPause(int vocab_size) {
  std::mt19937 random(3);
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request request;
    for (int t = 0; t < 20 + 3 * i; ++t) {
      request.input_ids.push_back(
          static_cast<TokenId>(random() % static_cast<unsigned>(vocab_size)));
    }
    request.max_tokens = 80;
    request.streaming = i % 2 == 0;
    request.output.return_log_probs = true;
    if (i % 3 != 0) {
      request.sampling.top_k = 20;
      request.sampling.temperature = 0.9F;
      request.sampling.seed = static_cast<uint64_t>(i);
    }
    if (i == 2) request.sampling.repetition_penalty = 1.2F;
    if (i == 4) request.sampling.frequency_penalty = 0.3F;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<std::shared_ptr<CollectingSink>> RunMade(
    const std::shared_ptr<const model::Engine>& engine, Device& device, ExecutorOptions options,
    ExecutorStats* stats) {
  options.block_size = kBlockSize;
  options.max_batch_size = 6;
  const auto executor = MakeExecutor(engine, device, options);
  auto sinks = RunAll(*executor, RequestsToPause(engine->config.vocab_size));
  executor->Shutdown(0);
  *stats = executor->stats();
  return sinks;
}

TEST(PauseTest, PausedRequestsOfTheDemoModelYieldTheSameIdsAndLogProbs) {
  const auto device = Device::Cpu();
  const auto engine =
      builder::Open(INFLIGHT_DEMO_MODEL, *device, {.dtype = DType::kF32, .limits = {}});
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  ExecutorOptions options;
  options.deterministic = true;
  options.max_kv_tokens = 2048;
  ExecutorStats stats;
  const auto expected = RunMade(*engine, *device, options, &stats);
  EXPECT_EQ(stats.num_pauses, 0);
  for (const bool reuse : {true, false}) {
    options.max_kv_tokens = 256;  // of the 700 that all need in the end
    options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
    options.enable_prefix_reuse = reuse;
    const auto actual = RunMade(*engine, *device, options, &stats);
    EXPECT_GE(stats.num_pauses, 2);
    EXPECT_GT(stats.tokens_recomputed, 0);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(actual[i]->last.status.ok()) << actual[i]->last.status.ToString();
      EXPECT_EQ(actual[i]->last.finish_reason, expected[i]->last.finish_reason);
      ASSERT_EQ(actual[i]->ids, expected[i]->ids) << "request " << i;
      EXPECT_EQ(actual[i]->log_probs, expected[i]->log_probs) << "request " << i;
      EXPECT_EQ(actual[i]->last.cum_log_prob, expected[i]->last.cum_log_prob);
    }
  }
}

}  // namespace
}  // namespace inflight::golden
