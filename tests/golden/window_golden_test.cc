// SPDX-License-Identifier: Apache-2.0
// Sliding windows with sinks through the executor against full attention with a mask, in float64
// (make_window_golden.py), out of a KV cache that holds less than one whole sequence; and that
// neither windows nor the host pool change what reuse of blocks answers.
#include <gtest/gtest.h>

#include <algorithm>

#include "builder/builder.h"
#include "constants.h"
#include "golden_reference.h"
#include "run_requests.h"
#include "window_cases.h"

namespace inflight::golden {
namespace {

class WindowGoldenTest : public testing::Test {
 protected:
  std::unique_ptr<Executor> Start(const std::string& model, ExecutorOptions options) {
    auto engine = builder::Open(DataDir() / model, *device_, {.dtype = DType::kF32, .limits = {}});
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    options.block_size = kBlockSize;
    options.max_batch_size = 4;
    return MakeExecutor(*engine, *device_, options);
  }

  static std::shared_ptr<LogitsSink> Run(Executor& executor, const Request& request) {
    return RunAll<LogitsSink>(executor, {request}).front();
  }

  std::unique_ptr<Device> device_ = Device::Cpu(2);
};

Request RequestOf(const WindowCase& c) {
  Request request;
  request.input_ids = c.prompt;
  request.max_tokens = static_cast<int>(c.greedy.size());
  return request;
}

TEST_F(WindowGoldenTest, EqualsMaskedFullAttention) {
  for (const WindowCase& c : ReadWindowCases()) {
    SCOPED_TRACE(c.Name());
    ExecutorOptions options = c.options;
    const auto& windows = options.attention_windows;
    const bool gives_back = std::ranges::count(windows, 0) == 0;
    const int largest = std::ranges::max(windows);
    for (const bool in_blocks : {true, false}) {  // in chunks of a block, and of a window
      if (in_blocks) options.max_num_tokens = kBlockSize;
      if (!in_blocks) options.max_num_tokens.reset();
      // Sinks, and two windows wherever blocks begin; a whole sequence has 130 tokens.
      if (gives_back) options.max_kv_tokens = 2 * largest + 4 * kBlockSize;
      const auto executor = Start(c.model, options);
      ASSERT_GE(executor->limits().max_seq_len, 256);
      if (gives_back && largest < 24) {
        EXPECT_LT(executor->limits().num_blocks * kBlockSize, 130);
      }
      Request request = RequestOf(c);
      request.output = {.return_context_logits = true, .return_generation_logits = true};
      const auto answer = Run(*executor, request);
      ASSERT_TRUE(answer->last.status.ok()) << answer->last.status.ToString();
      EXPECT_EQ(answer->ids, c.greedy);
      EXPECT_LE(WorstLogit(c, answer->logits), kTolerance);
      executor->Shutdown(0);
      EXPECT_EQ(executor->stats().kv_blocks_used, 0);
    }
  }
}

// A model's own window needs no option: what transformers says over 256 steps, out of a cache that
// holds less than one whole sequence, in chunks, and again with what the first run left.
TEST_F(WindowGoldenTest, AModelsOwnWindowEqualsTransformers) {
  for (const Expected& expected : ReadReference(DataDir() / "mistral_window"))
    for (const bool in_blocks : {true, false}) {
      ExecutorOptions options;
      if (in_blocks) options.max_num_tokens = kBlockSize;
      options.max_kv_tokens = 2 * 24 + 4 * kBlockSize;  // two windows wherever blocks begin
      const auto executor = Start("mistral_window", options);
      EXPECT_LT(executor->limits().num_blocks * kBlockSize, 256);
      ASSERT_EQ(executor->limits().max_seq_len, 512);
      Request request;
      request.input_ids = expected.prompt;
      request.max_tokens = static_cast<int>(expected.greedy.size());
      for (int round = 0; round < 2; ++round) {
        const auto answer = Run(*executor, request);
        ASSERT_TRUE(answer->last.status.ok()) << answer->last.status.ToString();
        EXPECT_EQ(answer->ids, expected.greedy) << "round " << round;
      }
    }
}

TEST_F(WindowGoldenTest, SeveralSequencesShareASmallPool) {
  const WindowCase c = ReadWindowCases()[1];  // 24 tokens, 4 of them sinks
  ExecutorOptions options = c.options;
  options.max_num_tokens = 32;
  options.max_kv_tokens = 12 * kBlockSize;
  for (const auto policy :
       {SchedulerPolicy::kGuaranteedNoEvict, SchedulerPolicy::kMaxUtilization}) {
    options.scheduler_policy = policy;
    const auto executor = Start(c.model, options);
    std::vector<std::shared_ptr<LogitsSink>> answers;
    for (int i = 0; i < 6; ++i) {
      answers.push_back(std::make_shared<LogitsSink>());
      ASSERT_TRUE(executor->Enqueue(RequestOf(c), answers.back()).ok());
    }
    for (const auto& answer : answers) {
      answer->Wait();
      EXPECT_EQ(answer->ids, c.greedy);
    }
  }
}

TEST_F(WindowGoldenTest, ReuseEqualsNoReuse) {
  for (const WindowCase& c : ReadWindowCases()) {
    ExecutorOptions options = c.options;
    options.max_kv_tokens = 512;
    const auto executor = Start(c.model, options);
    options.enable_prefix_reuse = false;
    const auto without = Start(c.model, options);
    Request request = RequestOf(c);
    request.output.return_log_probs = true;
    const auto expected = Run(*without, request);
    Run(*executor, request);
    const auto again = Run(*executor, request);
    EXPECT_EQ(again->last.num_cached_tokens, 64) << "four blocks of 70 tokens";
    EXPECT_EQ(again->ids, expected->ids);
    EXPECT_EQ(again->log_probs, expected->log_probs);
    // What was generated under the window is found again too, its middle long given back.
    Request longer = request;
    longer.input_ids.insert(longer.input_ids.end(), c.greedy.begin(), c.greedy.end() - 10);
    longer.max_tokens = 10;
    const auto tail = Run(*executor, longer);
    EXPECT_GE(tail->last.num_cached_tokens, 112);
    EXPECT_EQ(tail->ids, std::vector<TokenId>(c.greedy.end() - 10, c.greedy.end()));
  }
}

TEST_F(WindowGoldenTest, ABeamSearchSeesTheWindowToo) {
  const WindowCase c = ReadWindowCases()[0];
  const auto executor = Start(c.model, c.options);
  Request request = RequestOf(c);
  request.sampling.beam_width = 2;
  request.output.return_log_probs = true;
  const auto beams = Run(*executor, request);
  ASSERT_EQ(beams->last.beams.size(), 2U);
  // The tokens of a beam as a prompt: the sum of their log-probs is the beam's.
  for (const Beam& beam : beams->last.beams) {
    Request forced = request;
    forced.sampling = {};
    forced.input_ids.insert(forced.input_ids.end(), beam.output_ids.begin(), beam.output_ids.end());
    forced.max_tokens = 1;
    forced.output = {.return_context_logits = true};
    const auto rows = Run(*executor, forced);
    const double sum =
        LogProbOf(beam.output_ids, c.prompt.size(), rows->logits, c.logits[0].size());
    EXPECT_NEAR(beam.cum_log_prob, sum, 1e-3);
  }
}

TEST_F(WindowGoldenTest, SinksNeedALargerWindowAndWindowsACount) {
  auto engine =
      builder::Open(DataDir() / "llama_gqa2", *device_, {.dtype = DType::kF32, .limits = {}});
  ASSERT_TRUE(engine.ok());
  const auto message = [&](std::vector<int> windows, int sinks) {
    ExecutorOptions options;
    options.max_kv_tokens = 512;
    options.attention_windows = std::move(windows);
    options.sink_tokens = sinks;
    return executor::CreateLocalBackend(*engine, *device_, options).status().message();
  };
  EXPECT_EQ(message({16}, 16),
            "sink_token_length: got 16, must be below max_attention_window_size, which is 16");
  EXPECT_EQ(message({16, -1}, 0),
            "max_attention_window_size: got -1, must be at least 1 (0 is all)");
  EXPECT_EQ(message({16}, -2), "sink_token_length: got -2, must be at least 0");
  EXPECT_EQ(message({1 << 29}, 500), "") << "a window longer than any sequence is none";
}

// Prompts in turn, of which the cache holds one or two: blocks come back from the host pool, and
// the answers are those of an executor that reuses nothing.
TEST_F(WindowGoldenTest, BlocksOfTheHostPoolHoldWhatTheyHeld) {
  const WindowCase c = ReadWindowCases()[0];
  for (const bool has_window : {false, true}) {
    ExecutorOptions options;
    if (has_window) options.attention_windows = {40};
    options.max_kv_tokens = 10 * kBlockSize;
    options.enable_prefix_reuse = false;
    const auto plain = Start(c.model, options);
    options.enable_prefix_reuse = true;
    // llama_gqa2's block: K and V of 16 tokens in float32.
    options.kv_cache_host_bytes = 64 << 20;
    const auto executor = Start(c.model, options);
    EXPECT_GT(executor->stats().kv_host_blocks_max, 100);
    for (int round = 0; round < 3; ++round) {
      for (TokenId first = 0; first < 5; ++first) {
        Request request = RequestOf(c);
        request.input_ids[0] = first;
        request.max_tokens = 8;
        request.output.return_log_probs = true;
        const auto expected = Run(*plain, request);
        const auto answer = Run(*executor, request);
        EXPECT_EQ(answer->ids, expected->ids);
        EXPECT_EQ(answer->log_probs, expected->log_probs);
        EXPECT_EQ(answer->last.num_cached_tokens, round == 0 ? 0 : 64);
      }
    }
    const ExecutorStats stats = executor->stats();
    EXPECT_GT(stats.kv_blocks_onboarded, 20);
    EXPECT_GE(stats.kv_blocks_offloaded, stats.kv_blocks_onboarded);
    EXPECT_LE(stats.kv_host_blocks_used, stats.kv_host_blocks_max);
  }
}

TEST_F(WindowGoldenTest, AHostPoolOfLessThanABlockIsRefused) {
  auto engine =
      builder::Open(DataDir() / "llama_gqa2", *device_, {.dtype = DType::kF32, .limits = {}});
  ASSERT_TRUE(engine.ok());
  ExecutorOptions options;
  options.kv_cache_host_bytes = 5;
  const auto status = executor::CreateLocalBackend(*engine, *device_, options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(status.message().starts_with("kv_cache_host_memory_bytes: got 5, a block takes "))
      << status.message();
}

}  // namespace
}  // namespace inflight::golden
