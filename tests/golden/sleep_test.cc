// SPDX-License-Identifier: Apache-2.0
// The demo model on the CPU before, over and after sleep: answers are those of an executor that
// never slept, bit for bit.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "sleep_cases.h"

namespace inflight::golden {
namespace {

namespace fs = std::filesystem;

class SleepTest : public ::testing::Test {
 protected:
  static SleepSinks AnswersOfOneThatNeverSlept(const std::vector<Request>& requests) {
    OpenOptions options = SleepingOptions("cpu");
    options.executor.enable_sleep = false;
    const loader::Loaded awake = OpenDemo(options);
    return RunAll(*awake.executor, requests);
  }
  static int VocabSize() { return OpenDemo(SleepingOptions("cpu")).info.limits.vocab_size; }
};

TEST_F(SleepTest, AnswersAreTheSameBeforeAndAfterEachLevel) {
  const loader::Loaded model = OpenDemo(SleepingOptions("cpu"));
  Executor& executor = *model.executor;
  const auto requests = RequestsToSleepOver(4, 24, executor.limits().vocab_size);
  const SleepSinks expected = AnswersOfOneThatNeverSlept(requests);
  ExpectSameAnswers(RunAll(executor, requests), expected);
  const ExecutorStats awake = executor.stats();
  const uint64_t free_bytes = model.device->ledger().free_bytes();
  for (const int level : {1, 2, 1, 2, 2}) {
    SCOPED_TRACE("level " + std::to_string(level));
    ASSERT_TRUE(executor.Sleep({.level = level}).ok());
    const SleepState state = executor.sleep_state();
    EXPECT_FALSE(state.is_awake);
    EXPECT_EQ(state.level, level);
    EXPECT_EQ(state.kv_cache_bytes, model.info.memory.kv_cache_bytes);
    EXPECT_EQ(state.weight_bytes, level == 2 ? model.info.memory.weight_bytes : 0);
    const uint64_t given = state.kv_cache_bytes + state.weight_bytes;
    EXPECT_EQ(model.device->ledger().free_bytes(), free_bytes + given);
    EXPECT_EQ(executor.stats().cpu_memory_bytes,
              awake.cpu_memory_bytes - static_cast<int64_t>(given));
    EXPECT_EQ(executor.stats().sleep_level, level);
    EXPECT_TRUE(executor.healthy());
    ASSERT_TRUE(executor.Sleep({.level = level}).ok()) << "a second time is none";
    ASSERT_TRUE(executor.WakeUp({}).ok());
    ASSERT_TRUE(executor.WakeUp({}).ok()) << "neither is waking one that is awake";
    EXPECT_TRUE(executor.sleep_state().is_awake);
    EXPECT_EQ(model.device->ledger().free_bytes(), free_bytes);
    const SleepSinks after = RunAll(executor, requests);
    ExpectSameAnswers(after, expected);
    EXPECT_EQ(after[0]->last.num_cached_tokens, 0) << "no block is known any more";
  }
  EXPECT_EQ(executor.stats().cpu_memory_bytes, awake.cpu_memory_bytes);
  EXPECT_EQ(executor.stats().requests_completed, awake.requests_completed + 20);
}

TEST_F(SleepTest, StreamsThatArePausedGoOnWithTheSameTokensAndQueuedOnesStayQueued) {
  const loader::Loaded model = OpenDemo(SleepingOptions("cpu"));
  Executor& executor = *model.executor;
  const auto requests = RequestsToSleepOver(8, 60, executor.limits().vocab_size);
  const SleepSinks expected = AnswersOfOneThatNeverSlept(requests);
  const std::vector<Request> early(requests.begin(), requests.begin() + 6);
  const std::vector<Request> late(requests.begin() + 6, requests.end());
  SleepSinks sinks = EnqueueAll(executor, early);
  for (int i = 0; i < 3; ++i) {
    {
      std::unique_lock lock(sinks[0]->mutex);
      const int before = sinks[0]->num_responses;
      sinks[0]->changed.wait(
          lock, [&] { return sinks[0]->num_responses > before + 2 || sinks[0]->last.is_final; });
    }
    ASSERT_TRUE(executor.Sleep({.level = 1 + i % 2}).ok());
    const ExecutorStats stats = executor.stats();
    EXPECT_EQ(stats.kv_blocks_used, 0);
    if (i == 0) {
      const SleepSinks queued = EnqueueAll(executor, late);
      sinks.insert(sinks.end(), queued.begin(), queued.end());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(executor.stats().num_queued_requests, 2);
      EXPECT_EQ(executor.stats().num_steps, stats.num_steps) << "no step is computed";
    }
    ASSERT_TRUE(executor.WakeUp({}).ok());
  }
  for (const auto& sink : sinks) sink->Wait();
  ExpectSameAnswers(sinks, expected);
}

TEST_F(SleepTest, WaitLetsRequestsEndAndAbortCancelsThem) {
  const loader::Loaded model = OpenDemo(SleepingOptions("cpu"));
  Executor& executor = *model.executor;
  const auto requests = RequestsToSleepOver(4, 60, executor.limits().vocab_size);
  const SleepSinks expected = AnswersOfOneThatNeverSlept(requests);
  SleepSinks sinks = EnqueueAll(executor, requests);
  while (executor.stats().num_active_requests < 4) std::this_thread::yield();
  ASSERT_TRUE(executor.Sleep({.level = 1, .mode = SleepMode::kWait}).ok());
  for (const auto& sink : sinks) sink->Wait();  // for the threads that deliver
  ExpectSameAnswers(sinks, expected);
  EXPECT_EQ(executor.stats().num_pauses, 0);
  ASSERT_TRUE(executor.WakeUp({}).ok());
  sinks = EnqueueAll(executor, requests);
  ASSERT_TRUE(executor.Sleep({.level = 1, .mode = SleepMode::kAbort}).ok());
  for (const auto& sink : sinks) {
    sink->Wait();
    EXPECT_EQ(sink->last.finish_reason, FinishReason::kCancelled);
  }
  ASSERT_TRUE(executor.WakeUp({}).ok());
  ExpectSameAnswers(RunAll(executor, requests), expected);
}

TEST_F(SleepTest, UnderStreamsAndCancelsEachRequestEndsOnce) {
  const loader::Loaded model = OpenDemo(SleepingOptions("cpu"));
  Executor& executor = *model.executor;
  const auto requests = RequestsToSleepOver(32, 16, executor.limits().vocab_size);
  const SleepSinks expected = AnswersOfOneThatNeverSlept(requests);
  SleepSinks sinks;
  std::vector<RequestId> ids;
  for (const Request& request : requests) {
    sinks.push_back(std::make_shared<CollectingSink>());
    const auto id = executor.Enqueue(request, sinks.back());
    ASSERT_TRUE(id.ok());
    ids.push_back(*id);
  }
  std::jthread cancels([&] {
    for (size_t i = 0; i < ids.size(); i += 4) {
      executor.Cancel(ids[i]);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(executor.Sleep({.level = 1 + i % 2}).ok());
    ASSERT_TRUE(executor.WakeUp({}).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (const auto& sink : sinks) sink->Wait();
  cancels.join();
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_TRUE(sinks[i]->last.status.ok());
    if (sinks[i]->last.finish_reason == FinishReason::kCancelled) continue;
    EXPECT_EQ(sinks[i]->ids, expected[i]->ids) << "request " << i;
  }
  EXPECT_EQ(executor.stats().kv_blocks_used, 0);
}

TEST_F(SleepTest, AnExecutorThatSleepsEndsWithAllThatWait) {
  const loader::Loaded model = OpenDemo(SleepingOptions("cpu"));
  Executor& executor = *model.executor;
  const auto requests = RequestsToSleepOver(3, 40, executor.limits().vocab_size);
  SleepSinks sinks = EnqueueAll(executor, requests);
  ASSERT_TRUE(executor.Sleep({.level = 2}).ok());
  executor.Shutdown(/*drain_ms=*/3'600'000);  // nobody would be answered in this hour
  for (const auto& sink : sinks) EXPECT_TRUE(sink->last.is_final);
  EXPECT_EQ(executor.Enqueue(requests[0], std::make_shared<CollectingSink>()).status().code(),
            StatusCode::kUnavailable);
}

TEST_F(SleepTest, WakingBeforeItSleepsCallsTheSleepBack) {
  const loader::Loaded model = OpenDemo(SleepingOptions("cpu"));
  Executor& executor = *model.executor;
  const auto requests = RequestsToSleepOver(2, 400, executor.limits().vocab_size);
  const SleepSinks sinks = EnqueueAll(executor, requests);
  while (executor.stats().num_active_requests < 2) std::this_thread::yield();
  Status slept;
  std::jthread sleeps([&] { slept = executor.Sleep({.level = 1, .mode = SleepMode::kWait}); });
  while (executor.sleep_state().is_awake && executor.stats().num_active_requests > 0)
    std::this_thread::yield();
  EXPECT_TRUE(executor.WakeUp({}).ok());
  sleeps.join();
  EXPECT_TRUE(slept.ok() || slept.code() == StatusCode::kAborted) << slept.ToString();
  EXPECT_TRUE(executor.sleep_state().is_awake);
  for (const auto& sink : sinks) sink->Wait();
}

TEST_F(SleepTest, AtLevel2WeightsAreThoseThatTheDirectoryHasByThen) {
  const fs::path dir = fs::temp_directory_path() / ("sleep_test_" + std::to_string(getpid()));
  fs::copy(INFLIGHT_DEMO_MODEL, dir, fs::copy_options::recursive);
  auto loaded = loader::Load(dir, SleepingOptions("cpu"));
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  Executor& executor = *loaded->executor;
  const auto requests = RequestsToSleepOver(3, 24, executor.limits().vocab_size);
  const SleepSinks expected = AnswersOfOneThatNeverSlept(requests);
  ASSERT_TRUE(executor.Sleep({.level = 2}).ok());
  fs::rename(dir / "model.safetensors", dir / "elsewhere");
  const Status gone = executor.WakeUp({});
  EXPECT_FALSE(gone.ok());
  EXPECT_EQ(executor.sleep_state().level, 2) << gone.ToString();
  fs::rename(dir / "elsewhere", dir / "model.safetensors");
  ASSERT_TRUE(executor.WakeUp({}).ok());
  ExpectSameAnswers(RunAll(executor, requests), expected);
  // Other weights of the same shapes: all of them 0, so that all logits are equal.
  ASSERT_TRUE(executor.Sleep({.level = 2}).ok());
  {
    std::fstream file(dir / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
    const uint64_t begin = sizeof(header_bytes) + header_bytes;
    const std::vector<char> zeros(fs::file_size(dir / "model.safetensors") - begin);
    file.seekp(static_cast<std::streamoff>(begin));
    file.write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
  }
  ASSERT_TRUE(executor.WakeUp({}).ok());
  const SleepSinks other = RunAll(executor, requests);
  EXPECT_EQ(other[0]->ids, std::vector<TokenId>(24, 0)) << "the first of equal logits";
  executor.Shutdown(0);
  fs::remove_all(dir);
}

TEST_F(SleepTest, WhatCannotSleepSaysSoByName) {
  OpenOptions options = SleepingOptions("cpu");
  options.executor.enable_sleep = false;
  const loader::Loaded never = OpenDemo(options);
  const Status refused = never.executor->Sleep({});
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("--enable-sleep-mode"), std::string::npos);

  options = SleepingOptions("cpu");
  options.tensor_parallel_size = 2;
  const loader::Loaded ranks = OpenDemo(options);
  EXPECT_EQ(ranks.executor->Sleep({}).code(), StatusCode::kUnimplemented);
  const auto requests = RequestsToSleepOver(2, 8, ranks.info.limits.vocab_size);
  for (const auto& sink : RunAll(*ranks.executor, requests)) EXPECT_TRUE(sink->last.status.ok());

  const loader::Loaded model = OpenDemo(SleepingOptions("cpu"));
  EXPECT_EQ(model.executor->Sleep({.level = 3}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(loader::Load(INFLIGHT_DEMO_MODEL, SleepingOptions("cpu"), {.file = "journal"})
                .status()
                .code(),
            StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace inflight::golden
