// SPDX-License-Identifier: Apache-2.0
#include "serving/instances/instance_model.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "serving/testing/test_requests.h"

namespace inflight::serving {
namespace {

using SenderPtr = std::shared_ptr<ResponseSender>;

class Does final : public Executable {
 public:
  using Work = std::function<void(const SenderPtr&)>;
  explicit Does(Work work) : work_(std::move(work)) {}
  void Execute(const Request&, const SenderPtr& sender) override { work_(sender); }

 private:
  const Work work_;
};

std::shared_ptr<InstanceModel> Make(Does::Work work, const std::string& more = "",
                                    RateLimiter* limiter = nullptr) {
  ::inference::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString("name: 'm' " + more, &config));
  return InstanceModel::Create(config, "1", std::make_unique<Does>(std::move(work)),
                               Clock::System(), limiter);
}

// Holds an instance until it is opened.
class Gate {
 public:
  void Wait() {
    std::unique_lock lock(mutex_);
    is_reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
  }
  void WaitReached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_reached_; });
  }
  void Open() {
    std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_reached_ = false;
  bool is_open_ = false;
};

Does::Work BehindGate(Gate& gate) {
  return [&gate](const SenderPtr& sender) {
    gate.Wait();
    sender->Finish();
  };
}

TEST(InstanceModel, WhatARequestThrowsIsItsErrorAndTheOthersGoOn) {
  const auto model = Make([](const SenderPtr&) { throw std::runtime_error("no memory left"); });
  for (int i = 0; i < 2; ++i) {
    Collector got;
    model->Infer(MakeRequest({}), got.Handler());
    got.WaitFinal();
    EXPECT_EQ(got.num_final(), 1);
    EXPECT_EQ(got.status(), Internal("unexpected error: no memory left"));
  }
}

TEST(InstanceModel, WhatItThrowsBehindItsAnswerChangesNothing) {
  const auto model = Make([](const SenderPtr& sender) {
    sender->Finish();
    throw std::runtime_error("too late");
  });
  for (int i = 0; i < 2; ++i) {
    Collector got;
    model->Infer(MakeRequest({}), got.Handler());
    got.WaitFinal();
    EXPECT_TRUE(got.status().ok());
  }
}

TEST(InstanceModel, RequestsInItsQueueArePending) {
  Gate gate;
  const auto model =
      Make(BehindGate(gate), "dynamic_batching { default_queue_policy { max_queue_size: 2 } }");
  const auto num_pending = [&] { return model->statistics().Snapshot().pending_requests; };
  Collector running;
  Collector waiting;
  Collector cancelled;
  Collector refused;
  model->Infer(MakeRequest({}), running.Handler());
  gate.WaitReached();
  EXPECT_EQ(num_pending(), 0U);
  model->Infer(MakeRequest({}), waiting.Handler());
  Request request = MakeRequest({});
  request.cancel->Cancel();
  model->Infer(request, cancelled.Handler());
  EXPECT_EQ(num_pending(), 2U);
  model->Infer(MakeRequest({}), refused.Handler());
  refused.WaitFinal();
  EXPECT_EQ(num_pending(), 2U);
  gate.Open();
  for (Collector* got : {&running, &waiting, &cancelled}) got->WaitFinal();
  EXPECT_EQ(num_pending(), 0U);
}

// Three wait while the first runs, and are then one execution.
TEST(InstanceModel, WhatWaitsIsExecutedTogetherAndCountedOnce) {
  Gate gate;
  const auto model = Make(BehindGate(gate), "max_batch_size: 4 dynamic_batching { }");
  const auto row = [] { return MakeRequest({Int("IN", 1)}); };
  Collector first;
  model->Infer(row(), first.Handler());
  gate.WaitReached();
  Collector rest[3];
  for (Collector& each : rest) model->Infer(row(), each.Handler());
  gate.Open();
  first.WaitFinal();
  for (Collector& each : rest) each.WaitFinal();
  const StatisticsSnapshot counted = model->statistics().Snapshot();
  EXPECT_EQ(counted.success.count, 4U);
  EXPECT_EQ(counted.inference_count, 4U);
  EXPECT_EQ(counted.execution_count, 2U);
  EXPECT_EQ(counted.compute_infer.count, 4U);
  ASSERT_EQ(counted.batches.size(), 2U);
  EXPECT_EQ(counted.batches.at(1).compute_infer.count, 1U);
  EXPECT_EQ(counted.batches.at(3).compute_infer.count, 1U);
  EXPECT_GT(counted.batches.at(3).compute_infer.ns, 0U);
  // A request of the batch was computed at most as long as the batch.
  EXPECT_LE(counted.batches.at(1).compute_infer.ns + counted.batches.at(3).compute_infer.ns,
            counted.compute_infer.ns);
}

TEST(InstanceModel, ACancelledRequestLeavesItsBatch) {
  Gate gate;
  const auto model = Make(BehindGate(gate), "max_batch_size: 4 dynamic_batching { }");
  Collector first, cancelled, last;
  model->Infer(MakeRequest({Int("IN", 1)}), first.Handler());
  gate.WaitReached();
  Request request = MakeRequest({Int("IN", 1)});
  const auto cancel = request.cancel;
  model->Infer(std::move(request), cancelled.Handler());
  model->Infer(MakeRequest({Int("IN", 1)}), last.Handler());
  cancel->Cancel();
  gate.Open();
  for (Collector* got : {&first, &cancelled, &last}) got->WaitFinal();
  EXPECT_EQ(cancelled.status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(last.status().ok());
  EXPECT_EQ(model->statistics().Snapshot().batches.at(1).compute_infer.count, 2U);
}

TEST(InstanceModel, ACancelledRequestTakesThoseOfItsSequenceAlong) {
  Gate gate;
  const auto model = Make(BehindGate(gate),
                          "max_batch_size: 4 sequence_batching { "
                          "max_sequence_idle_microseconds: 3600000000 }");
  const auto of = [](uint64_t sequence, bool starts) {
    Request request = MakeRequest({Int("IN", 1)});
    request.sequence_id = sequence;
    request.sequence_start = starts;
    return request;
  };
  Collector running, first, cancelled, behind;
  model->Infer(of(1, true), running.Handler());
  gate.WaitReached();
  model->Infer(of(1, false), first.Handler());
  Request request = of(1, false);
  const auto cancel = request.cancel;
  model->Infer(std::move(request), cancelled.Handler());
  model->Infer(of(1, false), behind.Handler());
  cancel->Cancel();
  gate.Open();
  for (Collector* got : {&running, &first, &cancelled, &behind}) got->WaitFinal();
  EXPECT_TRUE(first.status().ok());
  EXPECT_EQ(cancelled.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(behind.status().message(), "its sequence was cancelled");
}

// A slot below one that runs counts as a row.
TEST(InstanceModel, BatchesOfSequencesCountTheSlotsBelow) {
  const auto model = Make([](const SenderPtr& sender) { sender->Finish(); },
                          "max_batch_size: 4 sequence_batching { "
                          "max_sequence_idle_microseconds: 3600000000 }");
  for (const uint64_t sequence : {1, 2, 2}) {
    Request request = MakeRequest({Int("IN", 1)});
    request.sequence_id = sequence;
    request.sequence_start = true;
    Collector got;
    model->Infer(std::move(request), got.Handler());
    got.WaitFinal();
  }
  const StatisticsSnapshot counted = model->statistics().Snapshot();
  EXPECT_EQ(counted.batches.at(1).compute_infer.count, 1U);
  EXPECT_EQ(counted.batches.at(2).compute_infer.count, 2U);
  EXPECT_EQ(counted.inference_count, 3U);
}

// The second instance has its answer while the first holds the request before it.
TEST(InstanceModel, AnswersKeepTheOrderOfRequestsWhereThatIsAskedFor) {
  for (const bool in_order : {false, true}) {
    Gate gate;
    std::atomic<int> num_begun = 0;
    const auto model = Make(
        [&](const SenderPtr& sender) {
          if (num_begun++ == 0) gate.Wait();
          sender->Finish();
        },
        "instance_group { count: 2 } dynamic_batching { preserve_ordering: " +
            std::string(in_order ? "true }" : "false }"));
    Collector slow, quick;
    model->Infer(MakeRequest({}), slow.Handler());
    gate.WaitReached();
    model->Infer(MakeRequest({}), quick.Handler());
    while (model->statistics().Snapshot().success.count == 0) std::this_thread::yield();
    if (in_order)
      EXPECT_EQ(quick.num_final(), 0);
    else
      quick.WaitFinal();
    gate.Open();
    slow.WaitFinal();
    quick.WaitFinal();
  }
}

constexpr char kWantsR[] =
    "instance_group { count: 2 rate_limiter { resources { name: 'R' count: 1 } } }";

TEST(InstanceModel, ARequestStaysInItsQueueUntilThereAreResources) {
  const auto limiter = *RateLimiter::Make({});
  Gate gate;
  const auto holder = Make(BehindGate(gate), kWantsR, limiter.get());
  const auto work = [](const SenderPtr& sender) { sender->Finish(); };
  const auto model = Make(work, kWantsR, limiter.get());
  const auto unlimited = Make(work, "instance_group { count: 1 }", limiter.get());
  Collector running;
  Collector waiting;
  Collector beside;
  holder->Infer(MakeRequest({}), running.Handler());
  gate.WaitReached();
  model->Infer(MakeRequest({}), waiting.Handler());
  unlimited->Infer(MakeRequest({}), beside.Handler());
  beside.WaitFinal();
  while (limiter->num_waiting() == 0) std::this_thread::yield();
  EXPECT_EQ(waiting.num_final(), 0);
  EXPECT_EQ(model->statistics().Snapshot().pending_requests, 1U);
  gate.Open();
  waiting.WaitFinal();
  running.WaitFinal();
  EXPECT_TRUE(waiting.status().ok() && running.status().ok());
}

// Its thread holds the resource that the other instance waits for when the model goes.
TEST(InstanceModel, AModelGoesWhileItsInstancesWaitForEachOther) {
  const auto limiter = *RateLimiter::Make({});
  for (int i = 0; i < 50; ++i) {
    auto model = Make([](const SenderPtr& sender) { sender->Finish(); }, kWantsR, limiter.get());
    Collector got[4];
    for (Collector& each : got) model->Infer(MakeRequest({}), each.Handler());
    model = nullptr;
    for (Collector& each : got) each.WaitFinal();
  }
  while (limiter->num_waiting() > 0) std::this_thread::yield();  // for ever, if one still waited
}

}  // namespace
}  // namespace inflight::serving
