// SPDX-License-Identifier: Apache-2.0
// A leader and ranks of other processes, here threads that have met over TCP.
#include "executor/remote_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "comm/rendezvous_fixture.h"

namespace inflight::executor {
namespace {

using Kind = RankCall::Kind;
using comm::FreePort;
using comm::Group;

// What a rank above 0 hears until the group ends, answered as `answer` says.
void Hear(Group& group, const std::function<Status(Kind)>& answer, std::vector<Kind>* heard) {
  while (true) {
    const auto message = group.Receive(0, comm::AfterLong());
    if (!message.ok()) return;
    const auto kind = static_cast<Kind>((*message)[0]);
    heard->push_back(kind);
    if (!IsAnswered(kind)) continue;
    const std::string text = AnswerOf(answer(kind));
    if (!group.Send(0, std::as_bytes(std::span(text))).ok()) return;
  }
}

TEST(RemoteRanksTest, EachRankHearsAllAndTheFirstErrorIsReturned) {
  const FreePort port;
  constexpr int kSize = 3;
  std::vector<Kind> heard[kSize];
  std::thread others([&] {
    comm::RunRanks(port, 1, kSize, [&](Group& group) {
      const int rank = group.rank();
      Hear(
          group,
          [rank](Kind kind) {
            return rank == 2 && kind == Kind::kAwaitSteps ? ResourceExhausted("no memory")
                                                          : Status::Ok();
          },
          &heard[rank]);
    });
  });
  {
    const auto group = comm::JoinTest(port, 0, kSize);
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    std::atomic<bool> was_left = false;
    {
      RemoteRanks ranks(**group, 100, [](const Status&) {},
                        {nullptr, [&was_left](void*) { was_left = true; }});
      EXPECT_EQ(ranks.size(), 2);
      EXPECT_EQ(ranks.gpu_memory_bytes(), 100);
      ranks.Tell({.kind = Kind::kWarmUp});
      EXPECT_TRUE(ranks.WaitForAll().ok());
      ranks.Tell({.kind = Kind::kReleaseSlot, .slot = 1});
      ranks.Tell({.kind = Kind::kAwaitSteps});
      // Another thread's, whose answer is its own.
      EXPECT_TRUE(ranks.DoNow({.kind = Kind::kTakeAdapterMemory}).ok());
      const Status failed = ranks.WaitForAll();
      EXPECT_EQ(failed.code(), StatusCode::kResourceExhausted);
      EXPECT_EQ(failed.message(), "rank 2: no memory");
      EXPECT_TRUE(ranks.WaitForAll().ok()) << "it was returned";
      EXPECT_FALSE(was_left);
    }
    EXPECT_TRUE(was_left);
  }
  others.join();
  for (const int rank : {1, 2})
    EXPECT_THAT(heard[rank], ::testing::ElementsAre(Kind::kWarmUp, Kind::kReleaseSlot,
                                                    Kind::kAwaitSteps, Kind::kTakeAdapterMemory));
}

TEST(RemoteRanksTest, ARankThatEndsIsSaidOnce) {
  const FreePort port;
  std::promise<void> may_end;
  std::thread other([&] {
    auto group = comm::JoinTest(port, 1, 2);
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    may_end.get_future().wait();
    (*group)->Abort(Internal("its GPU fell off the bus"));
  });
  const auto group = comm::JoinTest(port, 0, 2);
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  std::promise<Status> said;
  RemoteRanks ranks(
      **group, 0, [&said](const Status& why) { said.set_value(why); }, nullptr);
  EXPECT_TRUE(ranks.status().ok());
  may_end.set_value();
  const Status why = said.get_future().get();
  EXPECT_EQ(why.code(), StatusCode::kUnavailable);
  ranks.Tell({.kind = Kind::kAwaitSteps});
  EXPECT_EQ(ranks.WaitForAll().code(), StatusCode::kUnavailable);
  EXPECT_EQ(ranks.status().code(), StatusCode::kUnavailable);
  other.join();
}

}  // namespace
}  // namespace inflight::executor
