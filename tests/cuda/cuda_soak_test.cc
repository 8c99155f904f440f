// SPDX-License-Identifier: Apache-2.0
// A crowd on a GPU: requests that come at random, are cancelled at random and are paused for want
// of KV blocks, each judged by the CPU's logits for it alone. INFLIGHT_SOAK_SECONDS sets how long.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <thread>

#include "gpu_test.h"
#include "oracle.h"
#include "requests.h"
#include "tiny_models.h"

namespace inflight::gpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxWaiting = 64;  // more than run at once

struct Sent {
  Request request;
  RequestId id = 0;
  std::shared_ptr<CollectingSink> sink = std::make_shared<CollectingSink>();

  int num_beams() const { return request.sampling.beam_width; }
  bool is_sampled() const { return request.sampling.top_p.has_value(); }
};

class CudaSoakTest : public GpuTest {
 protected:
  static std::chrono::seconds Duration() {
    const char* seconds = std::getenv("INFLIGHT_SOAK_SECONDS");
    return std::chrono::seconds(seconds == nullptr ? 2 : std::atoi(seconds));
  }

  // Half of them stream; every fifth is sampled, of which its neighbours must not notice. Some have
  // beams, or logits returned.
  Sent RandomSent(unsigned number) {
    Sent sent;
    sent.request = RandomRequest(static_cast<int>(1 + random_() % 120),
                                 static_cast<int>(1 + random_() % 90), 512, number);
    sent.request.streaming = number % 2 == 0;
    if (number % 5 == 4) {
      sent.request.sampling.top_p = 0.9F;
      sent.request.sampling.seed = number;
    }
    if (number % 7 == 3 && !sent.is_sampled())
      sent.request.sampling.beam_width = 2 + static_cast<int>(random_() % 3);
    if (number % 6 == 1) sent.request.output.num_top_log_probs = 3;
    if (number % 9 == 2) sent.request.output.return_generation_logits = true;
    if (number % 11 == 5) sent.request.output.return_context_logits = true;
    return sent;
  }

  // Ends when the request has; true when it was cancelled.
  bool IsAsAlone(const Sent& sent) {
    sent.sink->Wait();
    const Response& last = sent.sink->last;
    EXPECT_TRUE(last.status.ok()) << last.status.ToString();
    const bool is_cancelled = last.finish_reason == FinishReason::kCancelled;
    if (sent.num_beams() > 1) {
      EXPECT_TRUE(is_cancelled || std::ssize(last.beams) == sent.num_beams());
      for (const Beam& beam : last.beams)
        EXPECT_TRUE(oracle_.IsTruthful(sent.request.input_ids, beam));
      num_beams_ += std::ssize(last.beams);
      return is_cancelled;
    }
    const auto wanted = static_cast<size_t>(sent.request.max_tokens);
    EXPECT_TRUE(is_cancelled || sent.sink->ids.size() == wanted) << sent.sink->ids.size();
    if (!sent.is_sampled()) {
      EXPECT_TRUE(oracle_.IsGreedy(sent.request.input_ids, sent.sink->ids, sent.sink->log_probs));
    }
    return is_cancelled;
  }

  int64_t num_beams_ = 0;  // judged
  Oracle oracle_{TinyLlama()};
  std::mt19937 random_{3};
};

TEST_F(CudaSoakTest, ACrowdThatComesGoesAndIsPausedYieldsTheCpusIds) {
  ExecutorOptions options;
  options.block_size = 16;
  options.max_batch_size = 16;
  options.max_num_tokens = 128;
  options.max_kv_tokens = 1200;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  const auto executor =
      MakeExecutor(RandomEngine(TinyLlama(), TinyLimits(), device()), device(), options);
  std::deque<Sent> waiting;
  std::vector<ExecutorStats> records;
  int64_t num_cancelled = 0;
  int64_t num_judged = 0;
  int max_micro_batch = 0;
  const auto judge_first = [&] {
    SCOPED_TRACE("request " + std::to_string(num_judged));
    num_cancelled += IsAsAlone(waiting.front()) ? 1 : 0;
    waiting.pop_front();
    ++num_judged;
    executor->TakeIterationStats(&records);
    for (const ExecutorStats& record : records)
      max_micro_batch = std::max(max_micro_batch, record.micro_batch_id);
    records.clear();
  };
  const auto end = Clock::now() + Duration();
  for (unsigned number = 0; Clock::now() < end && !HasFailure();) {
    const size_t crowd = 1 + random_() % kMaxWaiting;
    for (; waiting.size() < crowd; ++number) {
      Sent sent = RandomSent(number);
      sent.id = Must(executor->Enqueue(sent.request, sent.sink));
      waiting.push_back(std::move(sent));
      if (random_() % 6 == 0) executor->Cancel(waiting[random_() % waiting.size()].id);
      if (random_() % 4 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 1000));
    }
    const size_t num_left = random_() % crowd;
    while (waiting.size() > num_left) judge_first();
  }
  while (!waiting.empty()) judge_first();
  executor->Shutdown(0);  // waits until no step holds a request
  const ExecutorStats stats = executor->stats();
  std::printf(
      "%lld requests, %lld steps, %lld pauses, %lld tokens recomputed, %lld cancelled, %d tokens "
      "judged, %d near ties, %lld beams\n",
      static_cast<long long>(num_judged), static_cast<long long>(stats.num_steps),
      static_cast<long long>(stats.num_pauses), static_cast<long long>(stats.tokens_recomputed),
      static_cast<long long>(num_cancelled), oracle_.num_judged(), oracle_.num_near_ties(),
      static_cast<long long>(num_beams_));
  EXPECT_GT(stats.num_pauses, 0);
  EXPECT_GT(num_cancelled, 0);
  EXPECT_GT(num_beams_, 0);
  EXPECT_EQ(max_micro_batch, 1) << "two steps in flight";
  EXPECT_EQ(stats.kv_blocks_used, 0);
  EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_max);
}

}  // namespace
}  // namespace inflight::gpu
