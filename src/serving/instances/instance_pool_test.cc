// SPDX-License-Identifier: Apache-2.0
// Instances that come and go, by way of the model that has them.
#include "serving/instances/instance_pool.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "serving/instances/instance_model.h"
#include "serving/tensors/tensor_values.h"
#include "serving/testing/test_requests.h"

namespace inflight::serving {
namespace {

using SenderPtr = std::shared_ptr<ResponseSender>;

class Does final : public Executable {
 public:
  using Work = std::function<void(const Request&, const SenderPtr&)>;
  explicit Does(Work work) : work_(std::move(work)) {}
  void Execute(const Request& request, const SenderPtr& sender) override { work_(request, sender); }

 private:
  const Work work_;
};

::inference::ModelConfig Config(const std::string& text) {
  ::inference::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString("name: 'm' " + text, &config));
  return config;
}

std::shared_ptr<InstanceModel> Make(Does::Work work, const std::string& config,
                                    RateLimiter* limiter = nullptr) {
  return InstanceModel::Create(Config(config), "1", std::make_unique<Does>(std::move(work)),
                               Clock::System(), limiter);
}

Status NoWarmUp(const std::function<void(Request, ResponseHandler)>&) { return Status::Ok(); }

Status Set(InstanceModel& model, const std::string& groups) {
  return model.SetInstanceGroups(Config(groups).instance_group(), NoWarmUp);
}

Status SetCount(InstanceModel& model, int count) {
  return Set(model, "instance_group { count: " + std::to_string(count) + " }");
}

// Holds whoever executes until somebody lets one pass.
class Turnstile {
 public:
  void Enter() {
    std::unique_lock lock(mutex_);
    ++num_inside_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return num_passes_ > 0; });
    --num_passes_;
    --num_inside_;
  }
  void WaitInside(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_inside_ == count; });
  }
  void Let(int count) {
    const std::lock_guard lock(mutex_);
    num_passes_ += count;
    changed_.notify_all();
  }
  Does::Work Work() {
    return [this](const Request&, const SenderPtr& sender) {
      Enter();
      sender->Finish();
    };
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_inside_ = 0;
  int num_passes_ = 0;
};

void ExpectAnsweredOnce(Collector& got) {
  got.WaitFinal();
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_TRUE(got.status().ok()) << got.status().ToString();
}

TEST(InstancePool, NewInstancesTakeWhatWaits) {
  Turnstile turnstile;
  const auto model = Make(turnstile.Work(), "instance_group { count: 1 }");
  Collector got[4];
  for (Collector& each : got) model->Infer(MakeRequest({}), each.Handler());
  turnstile.WaitInside(1);
  EXPECT_TRUE(SetCount(*model, 3).ok());
  EXPECT_EQ(model->num_instances(), 3);
  EXPECT_EQ(model->complete_config().instance_group(0).count(), 3);
  turnstile.WaitInside(3);  // for ever, if there were fewer
  turnstile.Let(4);
  for (Collector& each : got) ExpectAnsweredOnce(each);
  EXPECT_EQ(model->statistics().Snapshot().success.count, 4U);
}

TEST(InstancePool, InstancesEndWhatTheyRunBeforeTheyGo) {
  Turnstile turnstile;
  const auto model = Make(turnstile.Work(), "instance_group { count: 3 }");
  Collector running[3], waiting[2];
  for (Collector& each : running) model->Infer(MakeRequest({}), each.Handler());
  turnstile.WaitInside(3);
  for (Collector& each : waiting) model->Infer(MakeRequest({}), each.Handler());
  auto change = std::async(std::launch::async, [&] { return SetCount(*model, 1); });
  while (model->num_instances() != 1) std::this_thread::yield();
  EXPECT_EQ(change.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  turnstile.Let(5);  // the instance that stays runs what waits
  EXPECT_TRUE(change.get().ok());
  for (Collector& each : running) ExpectAnsweredOnce(each);
  for (Collector& each : waiting) ExpectAnsweredOnce(each);
}

// As many as there are execute at a time, and no more.
TEST(InstancePool, AsManyExecuteAsThereAreInstances) {
  std::mutex mutex;
  int num_running = 0;
  int most = 0;
  const auto model = Make(
      [&](const Request&, const SenderPtr& sender) {
        {
          const std::lock_guard lock(mutex);
          most = std::max(most, ++num_running);
        }
        for (int i = 0; i < 10; ++i) std::this_thread::yield();
        {
          const std::lock_guard lock(mutex);
          --num_running;
        }
        sender->Finish();
      },
      "instance_group { count: 4 }");
  for (const int count : {1, 3, 2}) {
    ASSERT_TRUE(SetCount(*model, count).ok());
    most = 0;
    std::vector<Collector> got(100);
    for (Collector& each : got) model->Infer(MakeRequest({}), each.Handler());
    for (Collector& each : got) ExpectAnsweredOnce(each);
    const std::lock_guard lock(mutex);
    EXPECT_LE(most, count);
  }
}

TEST(InstancePool, RequestsDoNotNoticeThatInstancesComeAndGo) {
  for (const char* batching : {"", "max_batch_size: 4 dynamic_batching { }"}) {
    const auto model = Make([](const Request&, const SenderPtr& sender) { sender->Finish(); },
                            std::string("instance_group { count: 1 } ") + batching);
    std::atomic<bool> is_changing = true;
    std::vector<std::jthread> clients;
    for (int i = 0; i < 3; ++i) {
      clients.emplace_back([&] {
        while (is_changing) {
          Collector got;
          model->Infer(MakeRequest({Int("IN", 1)}), got.Handler());
          ExpectAnsweredOnce(got);
        }
      });
    }
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(SetCount(*model, 1 + (i * 5) % 4).ok());
    is_changing = false;
  }
}

// The queue waits for more requests to fill a batch: another instance goes on to wait.
TEST(InstancePool, ABatchThatWaitsForMoreIsNotLostWithItsInstance) {
  const auto model =
      Make([](const Request&, const SenderPtr& sender) { sender->Finish(); },
           "max_batch_size: 2 instance_group { count: 2 } "
           "dynamic_batching { preferred_batch_size: 2 max_queue_delay_microseconds: 3600000000 }");
  Collector first, second;
  model->Infer(MakeRequest({Int("IN", 1)}), first.Handler());
  EXPECT_TRUE(SetCount(*model, 1).ok());
  model->Infer(MakeRequest({Int("IN", 1)}), second.Handler());
  ExpectAnsweredOnce(first);
  ExpectAnsweredOnce(second);
  EXPECT_EQ(model->statistics().Snapshot().execution_count, 1U);
}

// --- resources ---

constexpr char kWantsR[] =
    "instance_group { count: 1 rate_limiter { resources { name: 'R' count: 1 } } }";

TEST(InstancePool, InstancesThatNeedNothingAnyMoreDoNotWait) {
  const auto limiter = *RateLimiter::Make({});
  Turnstile turnstile;
  const auto holder = Make(turnstile.Work(), kWantsR, limiter.get());
  const auto model = Make([](const Request&, const SenderPtr& sender) { sender->Finish(); },
                          kWantsR, limiter.get());
  Collector holding, waiting;
  holder->Infer(MakeRequest({}), holding.Handler());
  turnstile.WaitInside(1);
  model->Infer(MakeRequest({}), waiting.Handler());
  while (limiter->num_waiting() == 0) std::this_thread::yield();
  EXPECT_TRUE(SetCount(*model, 1).ok());
  ExpectAnsweredOnce(waiting);
  EXPECT_EQ(limiter->num_waiting(), 0);
  turnstile.Let(1);
  ExpectAnsweredOnce(holding);
}

TEST(InstancePool, InstancesThatNeedResourcesNowWaitForThem) {
  const auto limiter = *RateLimiter::Make({});
  Turnstile turnstile;
  const auto holder = Make(turnstile.Work(), kWantsR, limiter.get());
  const auto model = Make([](const Request&, const SenderPtr& sender) { sender->Finish(); },
                          "instance_group { count: 2 }", limiter.get());
  EXPECT_TRUE(Set(*model, kWantsR).ok());
  Collector holding, waiting;
  holder->Infer(MakeRequest({}), holding.Handler());
  turnstile.WaitInside(1);
  model->Infer(MakeRequest({}), waiting.Handler());
  while (limiter->num_waiting() == 0) std::this_thread::yield();  // for ever, if it ran
  EXPECT_EQ(waiting.num_final(), 0);
  turnstile.Let(1);
  ExpectAnsweredOnce(waiting);
}

// --- warm-up ---

Request WarmUpRequest() {
  Request request = MakeRequest({Int("IN", 1)});
  request.is_warm_up = true;
  return request;
}

TEST(InstancePool, EachNewInstanceIsWarmedUpAndThatCountsNothing) {
  std::atomic<int> num_executed = 0;
  const auto model = Make(
      [&](const Request&, const SenderPtr& sender) {
        ++num_executed;
        sender->Finish();
      },
      "instance_group { count: 2 }");
  const auto warm_up = [](const auto& infer) {
    Collector got;
    infer(WarmUpRequest(), got.Handler());
    got.WaitFinal();
    return got.status();
  };
  const auto groups = Config("instance_group { count: 5 }").instance_group();
  EXPECT_TRUE(model->SetInstanceGroups(groups, warm_up).ok());
  EXPECT_EQ(num_executed, 3);
  const StatisticsSnapshot counted = model->statistics().Snapshot();
  EXPECT_EQ(counted.success.count + counted.inference_count + counted.execution_count, 0U);
  EXPECT_EQ(counted.pending_requests, 0U);
}

TEST(InstancePool, AFailedWarmUpChangesNothing) {
  Turnstile turnstile;
  const auto model = Make(turnstile.Work(), "instance_group { count: 2 name: 'old' }");
  Collector got[2];
  for (Collector& each : got) model->Infer(MakeRequest({}), each.Handler());
  int num_warmed_up = 0;
  const auto groups = Config("instance_group { count: 4 name: 'new' }").instance_group();
  const auto warm_up = [&](const auto&) {
    return ++num_warmed_up == 2 ? Internal("out of order") : Status::Ok();
  };
  EXPECT_EQ(model->SetInstanceGroups(groups, warm_up), Internal("out of order"));
  EXPECT_EQ(model->num_instances(), 2);
  EXPECT_EQ(model->complete_config().instance_group(0).name(), "old");
  turnstile.WaitInside(2);
  turnstile.Let(2);
  for (Collector& each : got) ExpectAnsweredOnce(each);
}

// --- sequences ---

class SequencesOfInstances : public ::testing::Test {
 protected:
  // One slot an instance, and sequences that do not fall idle.
  void Make(int num_instances) {
    model_ = serving::Make([](const Request&, const SenderPtr& sender) { sender->Finish(); },
                           "sequence_batching { max_sequence_idle_microseconds: 3600000000 } "
                           "instance_group { count: " +
                               std::to_string(num_instances) + " }");
  }
  void Infer(uint64_t sequence, bool start, bool end, Collector& got) {
    Request request = MakeRequest({Int("IN", 1)});
    request.sequence_id = sequence;
    request.sequence_start = start;
    request.sequence_end = end;
    model_->Infer(std::move(request), got.Handler());
  }
  void ExpectRuns(uint64_t sequence, bool start, bool end) {
    Collector got;
    Infer(sequence, start, end, got);
    ExpectAnsweredOnce(got);
  }

  std::shared_ptr<InstanceModel> model_;
};

TEST_F(SequencesOfInstances, ASequenceThatWaitsGetsASlotOfANewInstance) {
  Make(1);
  ExpectRuns(1, /*start=*/true, /*end=*/false);
  Collector waiting;
  Infer(2, /*start=*/true, /*end=*/false, waiting);
  EXPECT_TRUE(SetCount(*model_, 2).ok());
  ExpectAnsweredOnce(waiting);
  for (const uint64_t sequence : {1, 2}) ExpectRuns(sequence, false, /*end=*/true);
}

TEST_F(SequencesOfInstances, AnInstanceKeepsItsSequencesToTheirEnd) {
  Make(2);
  for (const uint64_t sequence : {1, 2}) ExpectRuns(sequence, /*start=*/true, /*end=*/false);
  EXPECT_TRUE(SetCount(*model_, 1).ok());
  EXPECT_EQ(model_->num_instances(), 1);
  Collector waiting;
  Infer(3, /*start=*/true, /*end=*/false, waiting);
  for (const uint64_t sequence : {1, 2}) ExpectRuns(sequence, false, false);
  EXPECT_EQ(waiting.num_final(), 0);
  for (const uint64_t sequence : {1, 2}) ExpectRuns(sequence, false, /*end=*/true);
  ExpectAnsweredOnce(waiting);
  // The slot of the instance that went is gone: one sequence runs, the next waits for it.
  Collector next;
  Infer(4, /*start=*/true, /*end=*/true, next);
  EXPECT_EQ(next.num_final(), 0);
  ExpectRuns(3, false, /*end=*/true);
  ExpectAnsweredOnce(next);
}

TEST_F(SequencesOfInstances, AModelMayEndWithInstancesThatStillHaveSequences) {
  Make(3);
  for (const uint64_t sequence : {1, 2, 3}) ExpectRuns(sequence, /*start=*/true, /*end=*/false);
  for (const int count : {1, 2, 1}) EXPECT_TRUE(SetCount(*model_, count).ok());
  model_ = nullptr;
}

}  // namespace
}  // namespace inflight::serving
