// SPDX-License-Identifier: Apache-2.0
// The demo model on a GPU over sleep: free memory rises by weights and KV cache, and steps that
// were recorded before give the same ids afterwards.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "sleep_cases.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {
namespace {

constexpr uint64_t kSlack = 8 << 20;  // what the driver takes and gives beside

uint64_t FreeOnGpu() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  return free_bytes;
}

class CudaSleepTest : public ::testing::Test {
 protected:
  void SetUp() override { NEED_TEST_GPU(); }
  void TearDown() override { unsetenv("INFLIGHT_CUDA_GRAPHS"); }

  static OpenOptions Options() {
    OpenOptions options = SleepingOptions("cuda");
    options.executor.max_kv_tokens = 65536;
    return options;
  }
};

TEST_F(CudaSleepTest, MemoryIsGivenBackAndIdsStayWithGraphsAndWithout) {
  for (const char* graphs : {"1", "0"}) {
    SCOPED_TRACE(std::string("INFLIGHT_CUDA_GRAPHS=") + graphs);
    setenv("INFLIGHT_CUDA_GRAPHS", graphs, 1);
    const loader::Loaded model = OpenDemo(Options());
    Executor& executor = *model.executor;
    const auto requests = RequestsToSleepOver(12, 40, executor.limits().vocab_size);
    const SleepSinks expected = RunAll(executor, requests);
    const ExecutorStats awake = executor.stats();
    for (const int level : {1, 1, 2, 1, 2, 2, 1}) {
      SCOPED_TRACE("level " + std::to_string(level));
      const uint64_t before = FreeOnGpu();
      ASSERT_TRUE(executor.Sleep({.level = level}).ok());
      const SleepState state = executor.sleep_state();
      EXPECT_EQ(state.weight_bytes, model.info.memory.weight_bytes);
      EXPECT_EQ(state.kv_cache_bytes, model.info.memory.kv_cache_bytes);
      EXPECT_EQ(state.host_copy_bytes, level == 1 ? state.weight_bytes : 0);
      const uint64_t given = state.weight_bytes + state.kv_cache_bytes;
      EXPECT_GT(given, kSlack * 4);
      EXPECT_GE(FreeOnGpu() + kSlack, before + given);
      EXPECT_EQ(executor.stats().gpu_memory_bytes,
                awake.gpu_memory_bytes - static_cast<int64_t>(given));
      ASSERT_TRUE(executor.WakeUp({}).ok());
      EXPECT_LE(FreeOnGpu(), before + kSlack);
      std::printf("level %d: asleep in %.2f ms, awake in %.2f ms\n", level,
                  static_cast<double>(executor.sleep_state().last_sleep_ns) * 1e-6,
                  static_cast<double>(executor.sleep_state().last_wake_ns) * 1e-6);
      ExpectSameAnswers(RunAll(executor, requests), expected);
    }
  }
}

TEST_F(CudaSleepTest, WhoIsPausedGoesOnWithTheSameIds) {
  const loader::Loaded model = OpenDemo(Options());
  Executor& executor = *model.executor;
  const auto requests = RequestsToSleepOver(16, 300, executor.limits().vocab_size);
  const SleepSinks expected = RunAll(executor, requests);
  const SleepSinks sinks = EnqueueAll(executor, requests);
  for (int i = 0; i < 4; ++i) {
    const int64_t before = executor.stats().num_steps;
    while (executor.stats().num_steps < before + 20) {  // of the 300 that each request has
    }
    ASSERT_TRUE(executor.Sleep({.level = 1 + i % 2}).ok());
    EXPECT_EQ(executor.stats().kv_blocks_used, 0);
    ASSERT_TRUE(executor.WakeUp({}).ok());
  }
  for (const auto& sink : sinks) sink->Wait();
  ExpectSameAnswers(sinks, expected);
  EXPECT_GT(executor.stats().num_pauses, 0);
}

TEST_F(CudaSleepTest, MemoryThatOthersHaveByThenIsRefusedAndTakenLater) {
  const loader::Loaded model = OpenDemo(Options());
  Executor& executor = *model.executor;
  const auto requests = RequestsToSleepOver(3, 20, executor.limits().vocab_size);
  const SleepSinks expected = RunAll(executor, requests);
  ASSERT_TRUE(executor.Sleep({.level = 1}).ok());
  {
    auto all = Buffer::Allocate(*model.device, "another model's",
                                model.device->FreeBytes() - (uint64_t{1} << 20));
    ASSERT_TRUE(all.ok()) << all.status().ToString();
    const Status refused = executor.WakeUp({});
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused.ToString();
    EXPECT_FALSE(executor.sleep_state().is_awake);
  }
  ASSERT_TRUE(executor.WakeUp({}).ok());
  ExpectSameAnswers(RunAll(executor, requests), expected);
}

// Ranks need a GPU each, or a process that was started for ranks that share one, which those
// variables say (ops/cuda/peers.h): they are read before any test. CI has no GPU, and runs one rank
// on the CPU (sleep_test.cc).
TEST_F(CudaSleepTest, RanksThatAreThreadsSleepTogether) {
  int num_gpus = 0;
  cudaGetDeviceCount(&num_gpus);
  OpenOptions options = Options();
  options.device = "auto";
  if (num_gpus < 2) {
    if (getenv("INFLIGHT_CUDA_SHARED_GPU") == nullptr)
      GTEST_SKIP() << "needs 2 GPUs, or INFLIGHT_CUDA_SHARED_GPU=1 INFLIGHT_CUDA_OVERLAP=0";
    options.gpus = {0, 0};
  }
  options.tensor_parallel_size = 2;
  const loader::Loaded model = OpenDemo(options);
  Executor& executor = *model.executor;
  const auto requests = RequestsToSleepOver(8, 60, executor.limits().vocab_size);
  const SleepSinks expected = RunAll(executor, requests);
  for (const int level : {1, 2, 1}) {
    const SleepSinks sinks = EnqueueAll(executor, requests);
    ASSERT_TRUE(executor.Sleep({.level = level}).ok());
    EXPECT_EQ(executor.sleep_state().kv_cache_bytes, model.info.memory.kv_cache_bytes);
    EXPECT_EQ(executor.sleep_state().weight_bytes, model.info.memory.weight_bytes);
    ASSERT_TRUE(executor.WakeUp({}).ok());
    for (const auto& sink : sinks) sink->Wait();
    ExpectSameAnswers(sinks, expected);
  }
}

}  // namespace
}  // namespace inflight::golden
