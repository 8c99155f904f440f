// SPDX-License-Identifier: Apache-2.0
// The executor with its threads, over the fake device.
#include "executor/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "simulation/fake_backend.h"

namespace inflight::executor {
namespace {

using ::inflight::testing::ExpectedOutput;
using ::inflight::testing::FakeBackend;
using ::inflight::testing::FakeBackendOptions;
using ::inflight::testing::SmallInfo;

// A sink that a test thread can wait on.
class WaitingSink : public ResponseSink {
 public:
  void OnResponse(Response response) override {
    const std::lock_guard lock(mutex_);
    thread_ = std::this_thread::get_id();
    ids_.insert(ids_.end(), response.output_ids.begin(), response.output_ids.end());
    if (response.is_final) ++num_final_;
    last_ = std::move(response);
    changed_.notify_all();
  }
  Response WaitForFinal() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_final_ > 0; });
    return last_;
  }
  void WaitForTokens(size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ids_.size() >= n; });
  }
  int num_final() const { return Locked(num_final_); }
  std::vector<TokenId> ids() const { return Locked(ids_); }
  std::thread::id thread() const { return Locked(thread_); }

 private:
  template <typename T>
  T Locked(const T& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> ids_;
  int num_final_ = 0;
  Response last_;
  std::thread::id thread_;
};

// Steps begin only while the gate is open, so that a test can hold the device.
struct Gate {
  void Open() {
    const std::lock_guard lock(mutex);
    is_open = true;
    changed.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return is_open; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = false;
};

Request MakeRequest(uint64_t seed, int max_tokens = 8) {
  Request request;
  request.input_ids = {1, 2, static_cast<TokenId>(seed % 97)};
  request.max_tokens = max_tokens;
  request.sampling.seed = seed;
  return request;
}

std::unique_ptr<Executor> Make(FakeBackendOptions backend, const ExecutorOptions& options = {}) {
  auto executor = CreateExecutor(std::make_unique<FakeBackend>(std::move(backend)), options);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return *std::move(executor);
}

TEST(ExecutorTest, AnswersFromAStreamThread) {
  auto executor = Make({.info = SmallInfo(1)});
  auto sink = std::make_shared<WaitingSink>();
  const Request request = MakeRequest(3);
  const auto id = executor->Enqueue(request, sink);
  ASSERT_TRUE(id.ok());
  const Response response = sink->WaitForFinal();
  EXPECT_EQ(response.request_id, *id);
  EXPECT_EQ(response.output_ids, ExpectedOutput(request, 97).ids);
  EXPECT_NE(sink->thread(), std::this_thread::get_id());
  EXPECT_GE(response.times.first_scheduled_ns, response.times.enqueued_ns);
  EXPECT_GE(response.times.first_token_ns, response.times.first_scheduled_ns);
  EXPECT_GE(response.times.last_token_ns, response.times.first_token_ns);
  EXPECT_TRUE(executor->healthy());
}

TEST(ExecutorTest, RefusedRequestNeverCallsItsSink) {
  auto executor = Make({.info = SmallInfo(1)});
  auto sink = std::make_shared<WaitingSink>();
  Request request = MakeRequest(1);
  request.max_tokens = 0;
  EXPECT_EQ(executor->Enqueue(request, sink).status().code(), StatusCode::kInvalidArgument);
  executor->Shutdown(0);
  EXPECT_EQ(executor->Enqueue(MakeRequest(1), sink).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(sink->num_final(), 0);
  EXPECT_EQ(sink.use_count(), 1);
}

TEST(ExecutorTest, FullQueueHasTheWellKnownText) {
  Gate gate;
  auto info = SmallInfo(1);
  info.max_batch_size = 1;
  auto executor = Make({.info = info, .on_launch = [&](const StepPlan&) { gate.Pass(); }},
                       {.max_queue_size = 2});
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  const auto enqueue = [&] {
    sinks.push_back(std::make_shared<WaitingSink>());
    return executor->Enqueue(MakeRequest(sinks.size()), sinks.back()).status();
  };
  ASSERT_TRUE(enqueue().ok());
  while (executor->stats().num_queued_requests > 0) std::this_thread::yield();  // in its first step
  ASSERT_TRUE(enqueue().ok());
  ASSERT_TRUE(enqueue().ok());
  EXPECT_EQ(enqueue(), ResourceExhausted(
                           "Exceeds maximum queue size: Maximum queue size of 2 has been reached, "
                           "please try again later")
                           .WithReason(Reason::kQueueFull));
  sinks.pop_back();
  gate.Open();
  for (const auto& sink : sinks) sink->WaitForFinal();
  ASSERT_TRUE(enqueue().ok());
  sinks.back()->WaitForFinal();
}

TEST(ExecutorTest, QueueDelayIsWaitedForAndThenOver) {
  auto executor = Make({.info = SmallInfo(1)}, {.max_queue_delay_us = 20'000});
  auto sink = std::make_shared<WaitingSink>();
  ASSERT_TRUE(executor->Enqueue(MakeRequest(1), sink).ok());
  const Response response = sink->WaitForFinal();
  EXPECT_EQ(response.output_ids, ExpectedOutput(MakeRequest(1), 97).ids);
  EXPECT_GE(response.times.first_scheduled_ns - response.times.enqueued_ns, 20'000'000);
}

TEST(ExecutorTest, MaxTokensBeyondMaxSeqLenIsShortened) {
  auto executor = Make({.info = SmallInfo(1)});
  auto sink = std::make_shared<WaitingSink>();
  ASSERT_TRUE(executor->Enqueue(MakeRequest(1, 1000), sink).ok());
  const Response response = sink->WaitForFinal();
  EXPECT_EQ(response.output_ids.size(), 37u);  // max_seq_len 40
  EXPECT_EQ(response.finish_reason, FinishReason::kLength);
}

TEST(ExecutorTest, ShutdownDrainsWhatWasAccepted) {
  auto executor = Make({.info = SmallInfo(2)});
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (uint64_t i = 0; i < 50; ++i) {
    sinks.push_back(std::make_shared<WaitingSink>());
    ASSERT_TRUE(executor->Enqueue(MakeRequest(i), sinks.back()).ok());
  }
  executor->Shutdown(/*drain_ms=*/60'000);
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(sinks[i]->num_final(), 1);
    EXPECT_EQ(sinks[i]->ids(), ExpectedOutput(MakeRequest(i), 97).ids);
  }
  executor->Shutdown(0);  // again is harmless
}

TEST(ExecutorTest, ShutdownCancelsWhatIsLeftAfterTheDrain) {
  Gate gate;
  auto executor = Make({.info = SmallInfo(2), .on_launch = [&](const StepPlan&) { gate.Pass(); }});
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (uint64_t i = 0; i < 20; ++i) {
    sinks.push_back(std::make_shared<WaitingSink>());
    ASSERT_TRUE(executor->Enqueue(MakeRequest(i, 30), sinks.back()).ok());
  }
  std::thread shutdown([&] { executor->Shutdown(/*drain_ms=*/0); });
  while (executor->Enqueue(MakeRequest(1), std::make_shared<WaitingSink>()).ok()) {
    std::this_thread::yield();
  }
  gate.Open();
  shutdown.join();
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->num_final(), 1);
    EXPECT_EQ(sink->WaitForFinal().finish_reason, FinishReason::kCancelled);
  }
  EXPECT_EQ(executor->stats().kv_blocks_used, 0);
}

TEST(ExecutorTest, DestructionAnswersEverything) {
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  {
    auto executor = Make({.info = SmallInfo(3)});
    for (uint64_t i = 0; i < 30; ++i) {
      sinks.push_back(std::make_shared<WaitingSink>());
      ASSERT_TRUE(executor->Enqueue(MakeRequest(i, 30), sinks.back()).ok());
    }
  }
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->num_final(), 1);
    EXPECT_EQ(sink.use_count(), 1);
  }
}

TEST(ExecutorTest, CancelEndsAStreamThatRuns) {
  auto info = SmallInfo(2);
  info.max_seq_len = 100'000;
  info.kv_groups[0].num_blocks = 30'000;
  auto executor = Make({.info = info});
  auto sink = std::make_shared<WaitingSink>();
  Request request = MakeRequest(1, 90'000);
  request.streaming = true;
  const auto id = executor->Enqueue(request, sink);
  ASSERT_TRUE(id.ok());
  sink->WaitForTokens(10);
  executor->Cancel(*id);
  EXPECT_EQ(sink->WaitForFinal().finish_reason, FinishReason::kCancelled);
}

TEST(ExecutorTest, DeviceFaultFailsPendingRequestsAndHealth) {
  auto executor = Make({.info = SmallInfo(2), .fail_collect_of_step = 5});
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (uint64_t i = 0; i < 10; ++i) {
    sinks.push_back(std::make_shared<WaitingSink>());
    if (!executor->Enqueue(MakeRequest(i, 30), sinks.back()).ok()) sinks.pop_back();
  }
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->WaitForFinal().status.code(), StatusCode::kInternal);
  }
  EXPECT_FALSE(executor->healthy());
  EXPECT_EQ(executor->Enqueue(MakeRequest(1), std::make_shared<WaitingSink>()).status().code(),
            StatusCode::kUnavailable);
}

TEST(ExecutorTest, ABackendThatIsLostWhileNothingRunsIsAFault) {
  std::atomic<bool> is_lost{false};
  auto executor = Make({.info = SmallInfo(1), .status = [&] {
                          return is_lost.load() ? Unavailable("rank 1 is gone") : Status::Ok();
                        }});
  auto sink = std::make_shared<WaitingSink>();
  ASSERT_TRUE(executor->Enqueue(MakeRequest(1), sink).ok());
  EXPECT_TRUE(sink->WaitForFinal().status.ok());
  EXPECT_TRUE(executor->healthy());
  is_lost.store(true);
  while (executor->healthy()) std::this_thread::yield();  // idle turns
  const Status refused = executor->Enqueue(MakeRequest(2), sink).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("rank 1 is gone"));
}

TEST(ExecutorTest, HeartbeatAgesWithTheClock) {
  ManualClock clock;
  auto made = CreateExecutor(
      std::make_unique<FakeBackend>(FakeBackendOptions{.info = SmallInfo(1)}), {}, clock);
  ASSERT_TRUE(made.ok());
  Gate gate;
  EXPECT_TRUE((*made)->healthy());
  clock.AdvanceNs(29'000'000'000);
  EXPECT_TRUE((*made)->healthy());
  while ((*made)->stats().heartbeat_ns < 29'000'000'000) std::this_thread::yield();  // idle turns
}

TEST(ExecutorTest, StuckStepTurnsHealthFalse) {
  ManualClock clock;
  Gate gate;
  std::atomic<bool> launched{false};
  auto made =
      CreateExecutor(std::make_unique<FakeBackend>(FakeBackendOptions{.info = SmallInfo(1),
                                                                      .on_launch =
                                                                          [&](const StepPlan&) {
                                                                            launched.store(true);
                                                                            gate.Pass();
                                                                          }}),
                     {}, clock);
  ASSERT_TRUE(made.ok());
  auto sink = std::make_shared<WaitingSink>();
  ASSERT_TRUE((*made)->Enqueue(MakeRequest(1), sink).ok());
  while (!launched.load()) std::this_thread::yield();
  clock.AdvanceNs(31'000'000'000);
  EXPECT_FALSE((*made)->healthy());
  gate.Open();
  sink->WaitForFinal();
  while (!(*made)->healthy()) std::this_thread::yield();
}

TEST(ExecutorTest, RequestStatisticsAreOfTheRequestsEnqueued) {
  auto executor = Make({.info = SmallInfo(1)}, {.request_stats_max_iterations = 16});
  auto sink = std::make_shared<WaitingSink>();
  const auto id = executor->Enqueue(MakeRequest(3, /*max_tokens=*/8), sink);
  sink->WaitForFinal();
  executor->Shutdown(/*drain_ms=*/0);  // the last turn is over
  std::vector<RequestStatsPerIteration> records;
  executor->TakeRequestStats(&records);
  ASSERT_EQ(records.size(), 8U);
  const RequestStats& last = records.back().requests.at(0);
  EXPECT_EQ(last.id, *id);
  EXPECT_EQ(last.stage, RequestStage::kGenerationComplete);
  EXPECT_EQ(last.num_generated_tokens, 8);
}

TEST(ExecutorTest, StatisticsHaveBounds) {
  const auto error = [](const ExecutorOptions& options) {
    return CreateExecutor(std::make_unique<FakeBackend>(FakeBackendOptions{.info = SmallInfo(1)}),
                          options)
        .status()
        .message();
  };
  EXPECT_EQ(error({.iter_stats_max_iterations = -1}),
            "iter_stats_max_iterations: got -1, must be in [0, 1048576]");
  EXPECT_EQ(error({.request_stats_max_iterations = 1 << 21}),
            "request_stats_max_iterations: got 2097152, must be in [0, 1048576]");
}

TEST(ExecutorTest, OptionsMayOnlyLowerTheEnginesLimits) {
  const auto make = [](const ExecutorOptions& options) {
    return CreateExecutor(std::make_unique<FakeBackend>(FakeBackendOptions{.info = SmallInfo(1)}),
                          options);
  };
  EXPECT_EQ(make({.max_batch_size = 5}).status().message(),
            "max_batch_size: got 5, must be in [1, 4] (rebuild the engine to raise it)");
  EXPECT_EQ(make({.max_num_tokens = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(make({.max_queue_size = -1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(make({.max_queue_delay_us = -1}).status().code(), StatusCode::kInvalidArgument);
  const auto lowered = make({.max_batch_size = 2, .max_num_tokens = 8});
  ASSERT_TRUE(lowered.ok());
  EXPECT_EQ((*lowered)->limits().max_batch_size, 2);
  EXPECT_EQ((*lowered)->limits().max_num_tokens, 8);
}

TEST(ExecutorTest, SequenceLengthIsLoweredToWhatThePoolHolds) {
  auto info = SmallInfo(1);
  info.kv_groups[0].num_blocks = 5;
  auto executor = Make({.info = info});
  EXPECT_EQ(executor->limits().max_seq_len, 20);
  EXPECT_EQ(executor->limits().max_input_len, 19);
}

TEST(ExecutorTest, WithoutChunkingAPromptMustFitOneStep) {
  auto executor =
      Make({.info = SmallInfo(1)}, {.max_num_tokens = 16, .enable_chunked_prefill = false});
  EXPECT_EQ(executor->limits().max_input_len, 16);
}

// Many threads enqueue, cancel and look at statistics while the executor is shut down.
TEST(ExecutorTest, EveryAcceptedRequestOfManyThreadsIsAnsweredOnce) {
  auto info = SmallInfo(3);
  auto executor =
      Make({.info = info, .ready_seed = 5}, {.max_queue_size = 32, .num_stream_threads = 2});
  constexpr int kThreads = 4, kRequests = 500;
  std::vector<std::vector<std::shared_ptr<WaitingSink>>> accepted(kThreads);
  std::atomic<int64_t> num_refused{0};
  std::vector<std::thread> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.emplace_back([&, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      for (int i = 0; i < kRequests; ++i) {
        auto sink = std::make_shared<WaitingSink>();
        Request request = MakeRequest(random() % 1000, 1 + static_cast<int>(random() % 12));
        request.streaming = random() % 2 == 0;
        if (random() % 8 == 0) request.timeout_ms = 1;
        const auto id = executor->Enqueue(std::move(request), sink);
        if (!id.ok()) {
          num_refused.fetch_add(1);
          std::this_thread::yield();
          continue;
        }
        accepted[static_cast<size_t>(t)].push_back(sink);
        if (random() % 3 == 0) executor->Cancel(*id);
        if (random() % 16 == 0) executor->Cancel(random());
        if (random() % 4 == 0) sink->WaitForFinal();
        EXPECT_LE(executor->stats().kv_blocks_used, 16);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  executor->Shutdown(60'000);
  size_t num_accepted = 0;
  for (const auto& sinks : accepted) {
    num_accepted += sinks.size();
    for (const auto& sink : sinks) EXPECT_EQ(sink->num_final(), 1);
  }
  EXPECT_EQ(num_accepted + static_cast<size_t>(num_refused.load()), size_t{kThreads} * kRequests);
  const ExecutorStats stats = executor->stats();
  EXPECT_EQ(stats.requests_completed + stats.requests_cancelled + stats.requests_timed_out,
            static_cast<int64_t>(num_accepted));
  EXPECT_EQ(stats.requests_failed, 0) << "the fake device found nothing wrong";
  EXPECT_EQ(stats.kv_blocks_used, 0);
  EXPECT_TRUE(executor->healthy());
}

}  // namespace
}  // namespace inflight::executor
