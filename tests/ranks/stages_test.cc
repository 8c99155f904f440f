// SPDX-License-Identifier: Apache-2.0
// Stages of a model are busy at the same time, each with a step of its own. The last stage waits
// with a step until the first has begun the one that is as many behind it as there are stages: were
// steps computed one after the other, that would never come.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "builder/builder.h"
#include "comm/shared_group.h"
#include "executor/executor.h"
#include "executor/local_backend.h"
#include "executor/rank_leader.h"
#include "run_requests.h"

namespace inflight::executor {
namespace {

// Which steps each stage has begun.
class Meter {
 public:
  explicit Meter(int num_stages) : num_begun_(static_cast<size_t>(num_stages)) {}

  void Begin(int stage) {
    const std::lock_guard lock(mutex_);
    ++num_begun_[static_cast<size_t>(stage)];
    changed_.notify_all();
  }
  // By the last stage, which has begun the `step`-th step, from 1: it goes on when each stage
  // before has begun the step behind that of the next one, so that all have a step of their own at
  // once.
  void Hold(int step) {
    std::unique_lock lock(mutex_);
    if (step < first_held_ || step > last_held_) return;
    constexpr std::chrono::seconds kPatience{20};
    const bool has_met = changed_.wait_for(lock, kPatience, [&] {
      for (size_t stage = 0; stage + 1 < num_begun_.size(); ++stage)
        if (num_begun_[stage] < step + static_cast<int>(num_begun_.size() - 1 - stage))
          return false;
      return true;
    });
    num_met_ += has_met ? 1 : 0;
    if (!has_met) last_held_ = 0;
  }
  void HoldSteps(int first, int last) {
    first_held_ = first;
    last_held_ = last;
  }

  int num_met() const { return num_met_; }
  int num_begun() const { return num_begun_.front(); }  // by the first stage

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> num_begun_;  // by stage
  int num_met_ = 0;
  int first_held_ = 1, last_held_ = 0;
};

// The first stage begins a step when it is told of it, the others when they have got what they
// compute with.
class MeteredStage : public comm::Communicator {
 public:
  MeteredStage(comm::Communicator& inner, Meter& meter) : inner_(inner), meter_(meter) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Status AllReduce(const TensorView& values, inflight::Stream& stream) override {
    return inner_.AllReduce(values, stream);
  }
  Status AllGather(const TensorView& mine, const TensorView& all,
                   inflight::Stream& stream) override {
    return inner_.AllGather(mine, all, stream);
  }
  Status Send(const TensorView& values, int to, inflight::Stream& stream) override {
    return inner_.Send(values, to, stream);
  }
  Status Receive(const TensorView& values, int from, inflight::Stream& stream) override {
    Status received = inner_.Receive(values, from, stream);
    if (rank() > 0) meter_.Begin(rank());
    if (rank() == size() - 1) meter_.Hold(++num_received_);
    return received;
  }
  void Abort(const Status& reason) override { inner_.Abort(reason); }

 private:
  comm::Communicator& inner_;
  Meter& meter_;
  int num_received_ = 0;
};

// The stages behind the first, a thread each.
class Stages : public RankFollowers {
 public:
  Stages(comm::ThreadGroup& group, Meter& meter) : group_(group), meter_(meter) {}
  ~Stages() override {
    Abort(Unavailable("the end"));
    for (const auto& stage : stages_) stage->End();
  }
  void Add(std::unique_ptr<RankFollower> follower) {
    stages_.push_back(std::make_unique<Stage>(std::move(follower)));
  }
  Status Tell(std::span<const std::byte> call) override {
    meter_.Begin(/*stage=*/0);  // nothing but steps is told here
    for (const auto& stage : stages_) stage->Tell(call);
    return Status::Ok();
  }
  void Abort(const Status& reason) override { group_.rank(0).Abort(reason); }

 private:
  class Stage {
   public:
    explicit Stage(std::unique_ptr<RankFollower> follower)
        : follower_(std::move(follower)), thread_([this] { Run(); }) {}
    void Tell(std::span<const std::byte> call) {
      const std::lock_guard lock(mutex_);
      calls_.emplace_back(call.begin(), call.end());
      changed_.notify_all();
    }
    void End() {
      {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
        changed_.notify_all();
      }
      thread_.join();
    }

   private:
    void Run() {
      std::unique_lock lock(mutex_);
      while (true) {
        changed_.wait(lock, [this] { return is_ending_ || !calls_.empty(); });
        if (is_ending_) return;
        const auto call = std::move(calls_.front());
        calls_.pop_front();
        lock.unlock();
        const Status done = follower_->Do(call);
        EXPECT_TRUE(done.ok()) << done.ToString();
        lock.lock();
      }
    }

    const std::unique_ptr<RankFollower> follower_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::vector<std::byte>> calls_;
    bool is_ending_ = false;
    std::thread thread_;
  };

  comm::ThreadGroup& group_;
  Meter& meter_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

class StagesTest : public testing::TestWithParam<int> {
 protected:
  StagesTest() : meter_(num_stages()), group_(num_stages()) {
    options_.block_size = 16;
    options_.max_batch_size = 8;
    options_.max_num_tokens = 64;
    options_.max_kv_tokens = 4096;
    options_.deterministic = true;
    for (int rank = 0; rank < num_stages(); ++rank)
      stages_.push_back(std::make_unique<MeteredStage>(group_.rank(rank), meter_));
  }
  static int num_stages() { return GetParam(); }

  std::shared_ptr<const model::Engine> Open(int rank, int pp_size) {
    auto engine = builder::Open(INFLIGHT_DEMO_MODEL, *device_,
                                {.dtype = DType::kF32,
                                 .limits = std::nullopt,
                                 .ranks = {.tp_size = 1, .pp_size = pp_size},
                                 .rank = rank});
    CHECK(engine.ok());
    return *std::move(engine);
  }

  std::unique_ptr<Executor> MakeStages() {
    const auto make = [&](const MemoryPlan& plan,
                          const ops::OpTable& ops) -> Result<RankMembership> {
      auto followers = std::make_unique<Stages>(group_, meter_);
      for (int rank = 1; rank < num_stages(); ++rank) {
        auto follower =
            RankFollower::Create(Open(rank, num_stages()), *device_, FollowerShapeOf(plan), ops,
                                 {.pipeline = stages_[static_cast<size_t>(rank)].get()});
        CHECK(follower.ok());
        followers->Add(*std::move(follower));
      }
      RankMembership membership;
      membership.groups.pipeline = stages_[0].get();
      membership.leader = std::make_unique<RankLeader>(std::move(followers), plan.block_size);
      return membership;
    };
    const auto sizing = device_->ledger().LockSizing();
    auto local = CreateLocalBackend(Open(0, num_stages()), *device_, options_, {}, {}, make);
    CHECK(local.ok());
    auto executor = CreateExecutor(std::move(local->backend), options_);
    CHECK(executor.ok());
    return *std::move(executor);
  }

  void ExpectAnswersOfOneStage(const std::vector<Request>& requests) {
    const auto stages = MakeStages();
    const auto answers = RunAll<LogitsSink>(*stages, requests);
    const auto one = MakeExecutor(Open(0, 1), *device_, options_);
    const auto expected = RunAll<LogitsSink>(*one, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(answers[i]->ids, expected[i]->ids);
      EXPECT_EQ(answers[i]->logits, expected[i]->logits) << "to the bit";
    }
  }

  std::shared_ptr<Device> device_ = Device::Cpu(1);
  ExecutorOptions options_;
  Meter meter_;
  comm::ThreadGroup group_;
  std::vector<std::unique_ptr<MeteredStage>> stages_;
};
INSTANTIATE_TEST_SUITE_P(Stages, StagesTest, testing::Values(2, 4),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(StagesTest, AreBusyAtOnceWhileSequencesDecode) {
  std::vector<Request> requests(static_cast<size_t>(2 * num_stages()));
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].input_ids = {static_cast<TokenId>(5 + i), 17, 3, 99, 42};
    requests[i].max_tokens = 24;
    requests[i].output.return_generation_logits = true;
  }
  // None begins before all are there.
  options_.max_batch_size = 2 * num_stages();
  options_.max_queue_delay_us = 60'000'000;
  // All have computed their prompts by then, and none has ended.
  meter_.HoldSteps(4 * num_stages() + 1, 16 * num_stages());
  ExpectAnswersOfOneStage(requests);
  EXPECT_EQ(meter_.num_met(), 12 * num_stages());
}

TEST_P(StagesTest, AreBusyAtOnceWhileAPromptIsComputed) {
  Request request;
  for (int i = 0; i < 64 * (num_stages() + 2); ++i) request.input_ids.push_back(7 + i % 900);
  request.max_tokens = 1;
  request.output.return_generation_logits = true;
  meter_.HoldSteps(1, 3);
  ExpectAnswersOfOneStage({request});
  EXPECT_EQ(meter_.num_met(), 3);
  EXPECT_GE(meter_.num_begun(), num_stages()) << "a chunk for each at least";
}

// Its row in flight keeps the slot, and the next sequence gets another.
TEST_P(StagesTest, WhoIsCancelledInFlightMakesRoomForTheNext) {
  options_.max_batch_size = 1;
  const auto stages = MakeStages();
  for (int i = 0; i < 20; ++i) {
    Request request;
    request.input_ids = {static_cast<TokenId>(5 + i), 17, 3};
    request.max_tokens = 400;
    request.streaming = true;
    const auto cancelled = std::make_shared<CollectingSink>();
    const auto id = stages->Enqueue(request, cancelled);
    ASSERT_TRUE(id.ok()) << id.status().ToString();
    request.max_tokens = 3;
    const auto next = std::make_shared<CollectingSink>();
    ASSERT_TRUE(stages->Enqueue(request, next).ok());
    {
      std::unique_lock lock(cancelled->mutex);
      cancelled->changed.wait(lock, [&] { return cancelled->num_responses > 0; });
    }
    stages->Cancel(*id);
    cancelled->Wait();
    next->Wait();
    EXPECT_TRUE(next->last.status.ok()) << next->last.status.ToString();
    EXPECT_EQ(next->ids.size(), 3U);
  }
}

}  // namespace
}  // namespace inflight::executor
