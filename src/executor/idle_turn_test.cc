// SPDX-License-Identifier: Apache-2.0
#include "executor/idle_turn.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace inflight::executor {
namespace {

// Work on a thread of its own.
class Working {
 public:
  explicit Working(IdleTurn& turn)
      : thread_([this, &turn] {
          status_ = turn.Do([this] {
            has_worked_ = true;
            return Status::Ok();
          });
          has_returned_ = true;
        }) {}
  ~Working() {
    if (thread_.joinable()) thread_.join();
  }
  bool has_worked() const { return has_worked_; }
  bool has_returned() const { return has_returned_; }
  Status Join() {
    thread_.join();
    return status_;
  }

 private:
  std::atomic<bool> has_worked_ = false, has_returned_ = false;
  Status status_;
  std::thread thread_;
};

Status NothingToAwait() { return Internal("no step is in flight"); }

void LetOthersRun() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

TEST(IdleTurnTest, WorkIsDoneAtOnceWhereNoStepIsInFlight) {
  IdleTurn turn;
  EXPECT_TRUE(Working(turn).Join().ok());
  ASSERT_TRUE(turn.BeginStep(NothingToAwait).ok());
  turn.EndStep();
  EXPECT_EQ(turn.Do([] { return Unavailable("no memory"); }), Unavailable("no memory"));
}

TEST(IdleTurnTest, WorkWaitsForTheLastStepInFlight) {
  IdleTurn turn;
  ASSERT_TRUE(turn.BeginStep(NothingToAwait).ok());
  ASSERT_TRUE(turn.BeginStep(NothingToAwait).ok());
  Working work(turn);
  LetOthersRun();
  turn.EndStep();
  LetOthersRun();
  EXPECT_FALSE(work.has_worked());
  turn.EndStep();
  EXPECT_TRUE(work.Join().ok());
  EXPECT_TRUE(work.has_worked());
}

TEST(IdleTurnTest, TheNextStepComesBehindWorkThatWaits) {
  IdleTurn turn;
  ASSERT_TRUE(turn.BeginStep(NothingToAwait).ok());
  Working work(turn);
  bool was_awaited = false;
  const auto await = [&] {
    EXPECT_FALSE(work.has_worked());
    was_awaited = true;
    return Status::Ok();
  };
  while (!was_awaited) {  // until the thread has come
    ASSERT_TRUE(turn.BeginStep(await).ok());
    EXPECT_EQ(work.has_worked(), was_awaited);
    turn.EndStep();
  }
  EXPECT_TRUE(work.Join().ok());
  turn.EndStep();
}

TEST(IdleTurnTest, AFaultEndsWhatWaits) {
  IdleTurn turn;
  ASSERT_TRUE(turn.BeginStep(NothingToAwait).ok());
  Working work(turn);
  LetOthersRun();
  turn.Fail(Internal("a kernel failed"));
  turn.Fail(Internal("another one"));
  EXPECT_EQ(work.Join(), Internal("a kernel failed"));
  EXPECT_FALSE(work.has_worked());
}

// As a model does it: steps two deep beside threads that take memory.
TEST(IdleTurnTest, NoWorkMeetsAStep) {
  IdleTurn turn;
  std::atomic<int> num_steps = 0, num_working = 0, num_worked = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 200; ++j) {
        const Status done = turn.Do([&] {
          EXPECT_EQ(num_working++, 0);
          EXPECT_EQ(num_steps, 0);
          --num_working;
          return Status::Ok();
        });
        EXPECT_TRUE(done.ok());
        ++num_worked;
      }
    });
  // The steps in flight end where they are awaited, and are collected later.
  int num_in_flight = 0;
  while (num_worked < 800) {
    const auto await = [&] {
      num_steps = 0;
      return Status::Ok();
    };
    ASSERT_TRUE(turn.BeginStep(await).ok());
    EXPECT_EQ(num_working, 0);
    ++num_steps;
    if (++num_in_flight < 2) continue;
    num_steps = 1;
    turn.EndStep();
    --num_in_flight;
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace inflight::executor
