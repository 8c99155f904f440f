// SPDX-License-Identifier: Apache-2.0
// Models whose layers have different windows, out of a pool for each window, through the executor
// against transformers (make_golden.py). On a CPU, and in cuda_golden_test on a GPU against the
// same executor with one pool for all layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "builder/builder.h"
#include "constants.h"
#include "even_clock.h"
#include "executor/executor.h"
#include "executor/local_backend.h"
#include "golden_reference.h"
#include "run_requests.h"
#ifdef INFLIGHT_GOLDEN_CUDA
#include "tensor/test_gpu.h"
#endif

namespace inflight::golden {
namespace {

using executor::MemoryPlan;

#ifdef INFLIGHT_GOLDEN_CUDA
constexpr bool kIsOnGpu = true;
const char* const kModels[] = {"gemma2_head64", "gemma3_head64", "gpt_oss_mxfp4"};
#else
constexpr bool kIsOnGpu = false;
const char* const kModels[] = {"gemma2_caps",    "gemma2_head64", "gemma3_head64", "gemma3_rope",
                               "gemma3_old_cap", "gpt_oss_mxfp4", "gpt_oss_sinks", "qwen2_head64"};
#endif

class KvGroupsGoldenTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef INFLIGHT_GOLDEN_CUDA
    NEED_TEST_GPU();
    device_ = std::shared_ptr<Device>(TestGpu().value().get(), [](Device*){});
#endif
    options_.block_size = kBlockSize;
    options_.max_batch_size = 4;
    options_.max_num_tokens = kBlockSize;  // chunks, so that windows hold a few blocks
    options_.deterministic = true;
  }

  std::shared_ptr<const model::Engine> Open(const std::string& model, Device& device) const {
    auto engine = builder::Open(
        DataDir() / model, device,
        {.dtype = kIsOnGpu ? DType::kBF16 : DType::kF32,
         .quant_algo = kIsOnGpu ? std::nullopt : std::optional(model::QuantAlgo::kNone),
         .limits = {}});
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    CHECK(engine.ok());
    return *std::move(engine);
  }

  struct Started {
    MemoryPlan plan;
    std::unique_ptr<executor::Backend> backend;
  };
  static Started Start(const std::shared_ptr<const model::Engine>& engine, Device& device,
                       const ExecutorOptions& options) {
    auto local = executor::CreateLocalBackend(engine, device, options);
    EXPECT_TRUE(local.ok()) << local.status().ToString();
    CHECK(local.ok());
    return {local->plans.front(), std::move(local->backend)};
  }
  std::unique_ptr<Executor> MakeOf(Started started, const ExecutorOptions& options) {
    auto executor = executor::CreateExecutor(std::move(started.backend), options, clock_);
    CHECK(executor.ok());
    return *std::move(executor);
  }

  static std::vector<Request> RequestsOf(const std::string& model) {
    std::vector<Request> requests;
    for (const Expected& expected : ReadReference(DataDir() / model)) {
      Request& request = requests.emplace_back();
      request.input_ids = expected.prompt;
      request.max_tokens = static_cast<int>(expected.greedy.size());
    }
    return requests;
  }

  // What the requests are answered; of the model's own dtype on a CPU as transformers does.
  std::vector<std::vector<TokenId>> AnswersOf(const std::string& model) {
    std::vector<std::vector<TokenId>> answers;
    if (!kIsOnGpu) {
      for (const Expected& expected : ReadReference(DataDir() / model))
        answers.push_back(expected.greedy);
      return answers;
    }
    // A chunk of any length: then no window saves anything, and there is one pool.
    ExecutorOptions one = options_;
    one.enable_chunked_prefill = false;
    one.max_num_tokens.reset();
    Started started = Start(Open(model, *device_), *device_, one);
    EXPECT_EQ(started.plan.num_groups(), 1);
    const auto executor = MakeOf(std::move(started), one);
    for (const auto& sink : RunAll(*executor, RequestsOf(model))) answers.push_back(sink->ids);
    return answers;
  }

  // Twice: the second time with what the first left.
  void ExpectAnswers(const std::string& model, const std::vector<std::vector<TokenId>>& answers) {
    SCOPED_TRACE(model);
    Started started = Start(Open(model, *device_), *device_, options_);
    EXPECT_EQ(started.plan.num_groups(), 2);
    EXPECT_EQ(started.plan.window(), 0);
    const auto executor = MakeOf(std::move(started), options_);
    for (int round = 0; round < 2; ++round) {
      const auto sinks = RunAll(*executor, RequestsOf(model));
      ASSERT_EQ(sinks.size(), answers.size());
      for (size_t i = 0; i < sinks.size(); ++i) {
        EXPECT_TRUE(sinks[i]->last.status.ok()) << sinks[i]->last.status.ToString();
        EXPECT_EQ(sinks[i]->ids, answers[i]) << "prompt " << i << ", round " << round;
      }
    }
    executor->Shutdown(0);
    stats_ = executor->stats();
    EXPECT_EQ(stats_.kv_blocks_used, 0);
  }

  EvenClock clock_;  // a machine that is busy makes no draft too dear
  std::shared_ptr<Device> device_ = Device::Cpu(2);
  ExecutorOptions options_;
  ExecutorStats stats_;
};

TEST_F(KvGroupsGoldenTest, EveryModelAnswersTheSame) {
  for (const char* const model : kModels) {
    ExpectAnswers(model, AnswersOf(model));
    // What was generated did not push the prompts out of the window's pool.
    if (std::string_view(model) == "gemma3_rope") {
      EXPECT_EQ(stats_.prompt_tokens_cached, 16 + 64);
    }
  }
}

TEST_F(KvGroupsGoldenTest, AlsoWithPausesDraftsAndWithoutReuse) {
  const std::string model = kModels[2];
  const auto answers = AnswersOf(model);
  options_.drafts = DraftSource::kNgram;
  options_.max_draft_len = 4;
  options_.max_num_tokens = 2 * kBlockSize;
  ExpectAnswers(model, answers);
  EXPECT_GT(stats_.drafts_accepted, 0);
  options_.max_kv_tokens = 512;  // one of full length
  options_.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  ExpectAnswers(model, answers);
  EXPECT_GT(stats_.num_pauses, 0);
  options_.drafts = DraftSource::kNone;
  options_.max_draft_len.reset();
  options_.enable_prefix_reuse = false;
  options_.chunking_policy = ChunkingPolicy::kEqualProgress;
  ExpectAnswers(model, answers);
}

// Under caps of scores, too, and with norms of the heads of q and k.
TEST_F(KvGroupsGoldenTest, BeamsKeepTheirBlocksInEachPool) {
  options_.max_batch_size = 8;  // a pool of the window for that many sequences holds a search
  ExecutorOptions one = options_;
  one.enable_chunked_prefill = false;
  one.max_num_tokens.reset();
  for (const std::string model : {kModels[0], kModels[2]}) {
    SCOPED_TRACE(model);
    std::vector<Request> requests = RequestsOf(model);
    for (Request& request : requests) {
      request.sampling.beam_width = 3;
      request.max_tokens = 60;
      request.output.return_log_probs = true;
    }
    requests.push_back(RequestsOf(model).front());
    const auto engine = Open(model, *device_);
    const auto expected = RunAll(*MakeOf(Start(engine, *device_, one), one), requests);
    Started started = Start(engine, *device_, options_);
    ASSERT_EQ(started.plan.num_groups(), 2);
    const auto actual = RunAll(*MakeOf(std::move(started), options_), requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(actual[i]->last.status.ok()) << actual[i]->last.status.ToString();
      EXPECT_EQ(actual[i]->ids, expected[i]->ids);
      ASSERT_EQ(actual[i]->last.beams.size(), expected[i]->last.beams.size());
      for (size_t b = 0; b < actual[i]->last.beams.size(); ++b)
        EXPECT_EQ(actual[i]->last.beams[b].output_ids, expected[i]->last.beams[b].output_ids);
    }
  }
}

// Prompts in turn, of which the pools hold one or two: blocks of both go to the host pool and come
// back.
TEST_F(KvGroupsGoldenTest, TheHostPoolHasBlocksOfEachPool) {
  const std::string model = kModels[2];
  const auto engine = Open(model, *device_);
  options_.max_kv_tokens = 10 * kBlockSize;
  ExecutorOptions plain = options_;
  plain.enable_prefix_reuse = false;
  options_.kv_cache_host_bytes = 64 << 20;
  const auto without = MakeOf(Start(engine, *device_, plain), plain);
  Started started = Start(engine, *device_, options_);
  ASSERT_EQ(started.plan.num_groups(), 2);
  EXPECT_GT(started.plan.num_host_blocks, 100);
  const auto executor = MakeOf(std::move(started), options_);
  Request request;
  for (int i = 0; i < 70; ++i) request.input_ids.push_back(3 + 7 * i % 50);
  request.max_tokens = 24;
  for (int round = 0; round < 3; ++round)
    for (TokenId first = 3; first < 8; ++first) {
      request.input_ids[0] = first;
      const auto expected = RunAll(*without, {request}).front();
      const auto answer = RunAll(*executor, {request}).front();
      EXPECT_EQ(answer->ids, expected->ids);
      EXPECT_EQ(answer->last.num_cached_tokens, round == 0 ? 0 : 64);
    }
  EXPECT_GT(executor->stats().kv_blocks_onboarded, 20);
}

#ifndef INFLIGHT_GOLDEN_CUDA

// Of 19 tokens before and chunks of 16 a sequence holds at most 4 blocks of the window.
TEST_F(KvGroupsGoldenTest, BlocksOfTheWindowAreFreedWhileATextGoesOn) {
  const Expected expected = ReadReference(DataDir() / "gemma3_rope").front();
  options_.enable_prefix_reuse = false;
  Started started = Start(Open("gemma3_rope", *device_), *device_, options_);
  ASSERT_EQ(started.plan.num_groups(), 2);
  EXPECT_EQ(started.plan.other_groups[0].window, 19);
  EXPECT_EQ(started.plan.other_groups[0].full_length_blocks, 4);
  const int64_t whole = started.plan.num_blocks;
  const int64_t window = started.plan.other_groups[0].num_blocks;
  auto executor =
      executor::CreateSteppedExecutor(std::move(started.backend), options_, Clock::System());
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  Request request;
  request.input_ids = expected.prompt;
  request.max_tokens = static_cast<int>(expected.greedy.size());
  const auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE((*executor)->Enqueue(request, sink).ok());
  EXPECT_EQ((*executor)->stats().kv_blocks_max, whole + window);
  int num_checked = 0;
  while ((*executor)->Step()) {
    (*executor)->Deliver();
    const ExecutorStats stats = (*executor)->stats();
    if (stats.num_active_requests == 0 || stats.num_generation_requests == 0) continue;
    // The tokens whose keys are written; the last one drawn has none yet. The next one, at position
    // n, sees keys from n - 18 on.
    const auto n =
        static_cast<int>(expected.prompt.size()) + static_cast<int>(stats.tokens_generated) - 1;
    const int num_blocks = (n + 15) / 16;
    const int num_seen = num_blocks - std::max(n - 18, 0) / 16;
    EXPECT_EQ(stats.kv_blocks_used, num_blocks + num_seen) << n;
    EXPECT_LE(num_seen, 3);
    ++num_checked;
  }
  EXPECT_GT(num_checked, 200);
  EXPECT_EQ(sink->ids, expected.greedy);
  EXPECT_EQ((*executor)->stats().kv_blocks_free, whole + window);
}

// Memory for 18 blocks of three layers, as one pool: 288 tokens. With pools of their own, two of
// the layers take 4 blocks of a sequence of 512 tokens: 32 + 2 * 4 blocks of a layer are enough.
TEST_F(KvGroupsGoldenTest, ATextRunsThatWouldNotFitAsAWhole) {
  options_.max_batch_size = 1;
  options_.kv_cache_free_memory_fraction = 0.99;
  constexpr uint64_t kCapacity = uint64_t{1} << 30;
  uint64_t others = 0, layer_block_bytes = 0;
  {
    const auto roomy = Device::CpuWithCapacity(1, kCapacity);
    const auto engine = Open("gemma3_rope", *roomy);
    others = kCapacity - roomy->FreeBytes();
    const Started started = Start(engine, *roomy, options_);
    others += started.plan.total_bytes() - started.plan.weight_bytes - started.plan.kv_bytes();
    layer_block_bytes = started.plan.kv_bytes_per_block;
  }
  const auto device = Device::CpuWithCapacity(1, others + 3 * 18 * layer_block_bytes);
  Started started = Start(Open("gemma3_rope", *device), *device, options_);
  EXPECT_EQ(started.plan.max_seq_len, 512);
  EXPECT_EQ(started.plan.num_blocks, 32);
  EXPECT_EQ(started.plan.other_groups[0].num_blocks, 4);
  const auto executor = MakeOf(std::move(started), options_);
  for (const Expected& expected : ReadReference(DataDir() / "gemma3_rope")) {
    Request request;
    request.input_ids = expected.prompt;
    request.max_tokens = static_cast<int>(expected.greedy.size());
    EXPECT_EQ(RunAll(*executor, {request}).front()->ids, expected.greedy);
  }
}

#endif

}  // namespace
}  // namespace inflight::golden
