// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "comm/rendezvous_fixture.h"

namespace inflight::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Rendezvous, EveryRankTalksToEveryOther) {
  const FreePort port;
  RunRanks(port, 0, 4, [](Group& group) {
    EXPECT_EQ(group.size(), 4);
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{70000}}) {
      for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank()) continue;
        const Status sent = group.Send(peer, Pattern(group.rank(), peer, bytes));
        EXPECT_TRUE(sent.ok()) << sent.ToString();
      }
      for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank()) continue;
        const auto message = group.Receive(peer, AfterLong());
        ASSERT_TRUE(message.ok()) << message.status().ToString();
        EXPECT_EQ(*message, Pattern(peer, group.rank(), bytes));
      }
    }
    // Nobody leaves before all have what they await.
    const auto nothing = BytesOfText("");
    for (int peer = 0; peer < group.size(); ++peer)
      EXPECT_EQ(group.Exchange(peer, nothing, peer, {}).ok(), peer != group.rank());
  });
}

TEST(Rendezvous, RingOfMessagesLargerThanBuffersDoesNotLock) {
  const FreePort port;
  constexpr size_t kBytes = size_t{16} << 20;  // more than the system's buffers take
  RunRanks(port, 0, 3, [](Group& group) {
    const int right = (group.rank() + 1) % 3;
    const int left = (group.rank() + 2) % 3;
    std::vector<std::byte> in(kBytes);
    const Status done = group.Exchange(right, Pattern(group.rank(), right, kBytes), left, in);
    ASSERT_TRUE(done.ok()) << done.ToString();
    EXPECT_EQ(in, Pattern(left, group.rank(), kBytes));
  });
}

TEST(Rendezvous, MessagesKeepTheirOrder) {
  const FreePort port;
  RunRanks(port, 0, 2, [](Group& group) {
    for (int i = 0; i < 100; ++i) {
      if (group.rank() == 0) {
        EXPECT_TRUE(group.Send(1, BytesOfText(std::to_string(i))).ok());
      } else {
        const auto message = group.Receive(0, AfterLong());
        ASSERT_TRUE(message.ok()) << message.status().ToString();
        EXPECT_EQ(*message, BytesOfText(std::to_string(i)));
      }
    }
  });
}

TEST(Rendezvous, OneRankMeetsNobody) {
  const auto group = Group::Join({}, kAgreed, In(std::chrono::seconds(0)));
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  EXPECT_EQ((*group)->size(), 1);
  EXPECT_TRUE((*group)->status().ok());
  EXPECT_EQ((*group)->Send(0, {}).code(), StatusCode::kInvalidArgument);
}

// Rank 0 listens before the others know where.
TEST(Rendezvous, MeetsWhereRankZeroListensAlready) {
  auto listener = Listen("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  launch::World world = {.rank = 1, .size = 2, .leader_address = "127.0.0.1"};
  world.leader_port = PortOf(*listener);
  std::thread other([world] {
    const auto group = Group::Join(world, kAgreed, AfterLong());
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    EXPECT_EQ((*group)->Receive(0, AfterLong()).status(),
              Unavailable("rank 0 has ended the group"));
  });
  world.rank = 0;
  const auto group = Group::Join(world, kAgreed, AfterLong(),
                                 {.name = "model m", .listener = listener->Release()});
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  (*group)->Abort(Unavailable("it is enough"));
  EXPECT_EQ((*group)->status(), Unavailable("model m: it is enough"));
  other.join();
}

TEST(Rendezvous, WhoeverKnowsThatARankWillNotComeEndsTheWaiting) {
  auto listener = Listen("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  int num_checks = 0;
  const auto group = Group::Join(
      {.rank = 0, .size = 2, .leader_address = "127.0.0.1"}, kAgreed, AfterLong(),
      {.listener = listener->Release(),
       .check = [&] { return ++num_checks < 3 ? Status::Ok() : Unavailable("rank 1 has ended"); }});
  EXPECT_EQ(group.status(), Unavailable("rank 1 has ended"));
}

TEST(Rendezvous, RanksThatComeFirstWaitForTheLeader) {
  const FreePort port;
  std::thread worker([&port] {
    const auto group = JoinTest(port, 1, 2);
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    EXPECT_TRUE((*group)->Send(0, BytesOfText("here")).ok());
  });
  // Whether the other has tried before or not, it has to come in.
  std::this_thread::yield();
  const auto group = JoinTest(port, 0, 2);
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  EXPECT_EQ(*(*group)->Receive(1, AfterLong()), BytesOfText("here"));
  worker.join();
}

TEST(Rendezvous, WhoLeavesIsNotLostAndItsMessagesAreNeither) {
  const FreePort port;
  RunRanks(port, 0, 2, [](Group& group) {
    if (group.rank() == 1) {
      EXPECT_TRUE(group.Send(0, BytesOfText("last words")).ok());
      return;
    }
    EXPECT_EQ(*group.Receive(1, AfterLong()), BytesOfText("last words"));
    const auto none = group.Receive(1, AfterLong());
    EXPECT_EQ(none.status().code(), StatusCode::kCancelled);
    EXPECT_EQ(none.status().message(), "rank 1 has left the group");
    EXPECT_TRUE(group.status().ok());
  });
}

TEST(Rendezvous, DeadlineOfReceiveLosesNoMessage) {
  const FreePort port;
  RunRanks(port, 0, 2, [](Group& group) {
    if (group.rank() == 0) {
      const auto none = group.Receive(1, In(std::chrono::milliseconds(1)));
      EXPECT_EQ(none.status().code(), StatusCode::kDeadlineExceeded);
      EXPECT_TRUE(group.Send(1, BytesOfText("go on")).ok());
      EXPECT_EQ(*group.Receive(1, AfterLong()), BytesOfText("answer"));
    } else {
      EXPECT_EQ(*group.Receive(0, AfterLong()), BytesOfText("go on"));
      EXPECT_TRUE(group.Send(0, BytesOfText("answer")).ok());
    }
  });
}

TEST(Rendezvous, AbortEndsTheGroupOnAllRanks) {
  const FreePort port;
  RunRanks(port, 0, 3, [](Group& group) {
    if (group.rank() == 1) group.Abort(Internal("out of paper"));
    const auto none = group.Receive((group.rank() + 1) % 3, AfterLong());
    if (group.rank() == 1) {
      EXPECT_EQ(none.status(), Internal("out of paper"));
    } else {
      EXPECT_EQ(none.status().code(), StatusCode::kUnavailable);
      EXPECT_EQ(none.status().message(), "rank 1 has ended the group");
    }
    EXPECT_EQ(group.status(), none.status());
    EXPECT_EQ(group.Send((group.rank() + 1) % 3, {}), none.status());
  });
}

TEST(Rendezvous, MessageOfAnotherLengthEndsTheGroup) {
  const FreePort port;
  RunRanks(port, 0, 2, [](Group& group) {
    if (group.rank() == 1) {
      EXPECT_TRUE(group.Send(0, BytesOfText("four")).ok());
      EXPECT_EQ(group.Receive(0, AfterLong()).status().code(), StatusCode::kOk);
      EXPECT_EQ(group.Receive(0, AfterLong()).status().message(), "rank 0 has ended the group");
      return;
    }
    std::vector<std::byte> in(8);
    const Status wrong = group.Exchange(1, BytesOfText("any"), 1, in);
    EXPECT_EQ(wrong.code(), StatusCode::kDataLoss);
    EXPECT_EQ(wrong.message(), "rank 1 sent 4 bytes where 8 were awaited");
  });
}

TEST(Rendezvous, PeersAreOtherRanksOfTheGroup) {
  const FreePort port;
  RunRanks(port, 0, 2, [](Group& group) {
    for (const int peer : {-1, group.rank(), 2}) {
      EXPECT_EQ(group.Send(peer, {}).code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(group.Receive(peer, AfterLong()).status().field(), "rank");
      EXPECT_EQ(group.Exchange(peer, {}, 1 - group.rank(), {}).field(), "rank");
    }
  });
}

TEST(Rendezvous, WorldHasToSayWhereTheLeaderIs) {
  const auto group =
      Group::Join({.rank = 0, .size = 2, .launcher = "Open MPI"}, kAgreed, AfterLong());
  EXPECT_EQ(group.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(group.status().message(), AllOf(HasSubstr("Open MPI"), HasSubstr("MASTER_ADDR")));
}

// By a name, which may be of either family, and by an address of each.
TEST(Rendezvous, LeadersHaveNamesAndAddressesOfBothFamilies) {
  for (const char* leader : {"localhost", "127.0.0.2", "::1", "0.0.0.0"}) {
    if (std::string(leader) == "::1" && !Listen(leader, 0).ok()) continue;  // no IPv6 here
    const FreePort port;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        launch::World world = port.World(rank, 3);
        world.leader_address = leader;
        const auto group = Group::Join(world, kAgreed, AfterLong());
        ASSERT_TRUE(group.ok()) << leader << ": " << group.status().ToString();
        EXPECT_TRUE((*group)->Send((rank + 1) % 3, BytesOfText("x")).ok());
        EXPECT_EQ(*(*group)->Receive((rank + 2) % 3, AfterLong()), BytesOfText("x"));
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
}

TEST(Rendezvous, PortThatIsTakenIsNamed) {
  const FreePort port;
  const auto taken = Listen("127.0.0.1", port.number());
  ASSERT_TRUE(taken.ok()) << taken.status().ToString();
  const auto group = JoinTest(port, 0, 2);
  EXPECT_EQ(group.status().code(), StatusCode::kInternal);
  EXPECT_THAT(group.status().message(),
              AllOf(HasSubstr(std::to_string(port.number())), HasSubstr("MASTER_PORT")));
}

}  // namespace
}  // namespace inflight::comm
