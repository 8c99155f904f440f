// SPDX-License-Identifier: Apache-2.0
// What goes wrong while ranks meet and afterwards: who does not fit, who is missing, who dies, and
// strangers on the port.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <thread>

#include "comm/rendezvous.h"
#include "comm/rendezvous_fixture.h"

namespace inflight::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What a rank that does not fit is told by rank 0 of two, which then goes on with one that does.
Status Refusal(const FreePort& port, const launch::World& world, const Agreement& agreement) {
  auto leader = std::async(std::launch::async, [&port] { return JoinTest(port, 0, 2); });
  const auto refused = Group::Join(world, agreement, AfterLong());
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition)
      << refused.status().ToString();
  const auto fits = JoinTest(port, 1, 2);
  EXPECT_TRUE(fits.ok()) << fits.status().ToString();
  EXPECT_TRUE(leader.get().ok());
  return refused.status();
}

TEST(RendezvousFaults, AnotherVersionIsRefused) {
  const FreePort port;
  const Status refused = Refusal(port, port.World(1, 2), {"1.1", kAgreed.hash});
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("'1.1'"), HasSubstr("'1.0'")));
}

TEST(RendezvousFaults, AnotherModelIsRefusedAndLearnsNothingOfRank0s) {
  const FreePort port;
  const Status refused = Refusal(port, port.World(1, 2), {"1.0", 0xfeed});
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("000000000000feed"), Not(HasSubstr("0123456789abcdef"))));
}

TEST(RendezvousFaults, AnotherSizeIsRefused) {
  const FreePort port;
  const Status refused = Refusal(port, port.World(1, 3), kAgreed);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("one of 3 ranks"), HasSubstr("one of 2")));
}

TEST(RendezvousFaults, OfTwoRanksOfOneNumberOneIsRefused) {
  const FreePort port;
  auto leader = std::async(std::launch::async, [&port] { return JoinTest(port, 0, 3); });
  // One of them comes second, and says so before the group is complete.
  std::array<std::future<Result<std::unique_ptr<Group>>>, 2> twins;
  std::promise<Status> second;
  std::atomic<bool> has_failed = false;
  for (auto& twin : twins) {
    twin = std::async(std::launch::async, [&] {
      auto group = JoinTest(port, 1, 3);
      if (!group.ok() && !has_failed.exchange(true)) second.set_value(group.status());
      return group;
    });
  }
  const Status refused = second.get_future().get();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("rank 1"), HasSubstr("comes second")));
  const auto third = JoinTest(port, 2, 3);
  EXPECT_TRUE(third.ok()) << third.status().ToString();
  int joined = 0;
  std::vector<Result<std::unique_ptr<Group>>> kept;  // none leaves before all have joined
  for (auto& twin : twins) {
    kept.push_back(twin.get());
    joined += kept.back().ok() ? 1 : 0;
  }
  EXPECT_EQ(joined, 1);
  EXPECT_TRUE(leader.get().ok());
}

TEST(RendezvousFaults, MissingRanksAreNamedAtTheDeadline) {
  const FreePort port;
  auto leader = std::async(std::launch::async, [&port] {
    return Group::Join(port.World(0, 4), kAgreed, In(milliseconds(500))).status();
  });
  // It is told, or finds nobody any more at its own deadline where it came too late to be.
  const auto waiting = Group::Join(port.World(2, 4), kAgreed, In(milliseconds(5000)));
  const Status missing = leader.get();
  EXPECT_EQ(missing.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(missing.message(),
              HasSubstr("of 4 ranks these have not joined by the deadline: rank 1"));
  EXPECT_THAT(missing.message(), HasSubstr("rank 3"));
  EXPECT_FALSE(waiting.ok());
  EXPECT_THAT(waiting.status().message(), AnyOf(HasSubstr("rank 0 has given up"),
                                                HasSubstr("has not answered by the deadline")));
}

TEST(RendezvousFaults, WhoWasRefusedIsNamedAtTheDeadline) {
  for (milliseconds time{250};; time *= 2) {
    const FreePort port;
    auto leader = std::async(std::launch::async, [&port, time] {
      return Group::Join(port.World(0, 2), kAgreed, In(time)).status();
    });
    const auto refused = Group::Join(port.World(1, 2), {"1.0", 0xfeed}, In(time));
    const Status missing = leader.get();
    EXPECT_EQ(missing.code(), StatusCode::kDeadlineExceeded);
    if (refused.status().code() != StatusCode::kFailedPrecondition) continue;  // came too late
    EXPECT_THAT(missing.message(),
                AllOf(HasSubstr("the last that was refused: rank 1 from 127.0.0.1:"),
                      HasSubstr("000000000000feed")));
    return;
  }
}

TEST(RendezvousFaults, LeaderThatNeverComesIsNamed) {
  const FreePort port;
  const auto group = Group::Join(port.World(1, 2), kAgreed, In(milliseconds(300)));
  EXPECT_EQ(group.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(group.status().message(),
              HasSubstr("rank 0 at 127.0.0.1 port " + std::to_string(port.number())));
}

// A process of its own that joins as `rank` and then does nothing.
pid_t StartIdleRank(const FreePort& port, int rank, int size, milliseconds silence) {
  const pid_t child = fork();
  if (child != 0) return child;
  const auto group = JoinTest(port, rank, size, silence);
  if (!group.ok()) _exit(1);
  while (true) pause();
}

// Ranks 0 and 1 await messages of each other; both hear of the third, which gets `signal`.
void ExpectLossOfRank2(int signal, milliseconds silence, const std::string& reason) {
  const FreePort port;
  const pid_t child = StartIdleRank(port, 2, 3, silence);
  std::atomic<int> joined = 0;
  std::array<std::thread, 2> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank] = std::thread([&, rank] {
      auto group = JoinTest(port, rank, 3, silence);
      ASSERT_TRUE(group.ok()) << group.status().ToString();
      if (++joined == 2) kill(child, signal);
      const auto none = (*group)->Receive(1 - rank, AfterLong());
      EXPECT_EQ(none.status().code(), StatusCode::kUnavailable);
      EXPECT_THAT(none.status().message(), HasSubstr("rank 2 is gone: "));
      EXPECT_THAT(none.status().message(), HasSubstr(rank == 0 ? reason : "rank 0 says so"));
      EXPECT_EQ((*group)->status(), none.status());
      EXPECT_EQ((*group)->Send(1 - rank, {}), none.status());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(RendezvousFaults, KilledProcessIsNamedToAll) {
  ExpectLossOfRank2(SIGKILL, std::chrono::minutes(1), "rank 2 is gone: ");
}

TEST(RendezvousFaults, StoppedProcessIsNamedToAll) {
  ExpectLossOfRank2(SIGSTOP, milliseconds(2000), "it has said nothing for 2000 ms");
}

TEST(RendezvousFaults, SendToAStoppedProcessEnds) {
  const FreePort port;
  const pid_t child = StartIdleRank(port, 1, 2, milliseconds(2000));
  const auto group = JoinTest(port, 0, 2, milliseconds(2000));
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  kill(child, SIGSTOP);
  const std::vector<std::byte> large(size_t{64} << 20);  // more than buffers take
  const Status sent = (*group)->Send(1, large);
  EXPECT_EQ(sent.code(), StatusCode::kUnavailable);
  EXPECT_THAT(sent.message(), HasSubstr("rank 1 is gone"));
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

// A client that speaks bytes. Its messages are written out here by hand.
class RawClient {
 public:
  explicit RawClient(Descriptor socket) : socket_(std::move(socket)) {}
  explicit RawClient(const FreePort& port) {
    for (auto socket = ConnectTo("127.0.0.1", port.number(), AfterLong());;
         socket = ConnectTo("127.0.0.1", port.number(), AfterLong())) {
      if (!socket.ok()) continue;  // nobody listens yet
      socket_ = *std::move(socket);
      return;
    }
  }

  void Say(std::string_view text) { Say(BytesOfText(text)); }
  void Say(const std::vector<std::byte>& bytes) {
    // A peer that turned this client away takes no more: no error of the test.
    static_cast<void>(WriteAll(socket_, bytes, AfterLong()));
  }
  void SaySlowly(const std::vector<std::byte>& bytes) {
    for (const std::byte byte : bytes) {
      Say(std::vector{byte});
      std::this_thread::yield();
    }
  }
  std::vector<std::byte> Hear(size_t count) {
    std::vector<std::byte> bytes(count);
    const Status read = ReadAll(socket_, bytes, AfterLong());
    EXPECT_TRUE(read.ok()) << read.ToString();
    return bytes;
  }
  bool IsTurnedAway() {
    std::array<std::byte, 1> one;
    return ReadAll(socket_, one, AfterLong()).code() == StatusCode::kUnavailable;
  }

 private:
  Descriptor socket_;
};

std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

// The 72 bytes of src/comm/wire.h, "Hello".
std::vector<std::byte> RawHello(uint32_t kind, uint32_t rank, uint32_t size, uint64_t group = 0,
                                uint32_t wire_version = 1) {
  std::string version = kAgreed.version;
  version.resize(24);
  return BytesOfText("inflrank" + LittleEndian(wire_version, 4) + LittleEndian(kind, 4) +
                     LittleEndian(rank, 4) + LittleEndian(size, 4) + LittleEndian(kAgreed.hash, 8) +
                     LittleEndian(group, 8) + LittleEndian(9, 4) + LittleEndian(0, 4) + version);
}

TEST(RendezvousFaults, StrangersOnThePortHoldUpNobody) {
  const FreePort port;
  auto leader = std::async(std::launch::async, [&port] { return JoinTest(port, 0, 2); });
  RawClient web(port), silent(port), half(port), future(port), wrong_rank(port);
  web.Say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  half.Say("inflr");
  EXPECT_TRUE(web.IsTurnedAway());
  future.Say(RawHello(1, 1, 2, 0, 2));
  EXPECT_EQ(future.Hear(12), BytesOfText("inflrank" + LittleEndian(0, 4)));  // refused
  wrong_rank.Say(RawHello(1, 2, 2));
  EXPECT_EQ(wrong_rank.Hear(12), BytesOfText("inflrank" + LittleEndian(0, 4)));
  uint32_t state = 1;
  for (int i = 0; i < 200; ++i) {  // more than may wait
    RawClient noise(port);
    std::vector<std::byte> bytes(static_cast<size_t>(i));
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
    noise.Say(bytes);
  }
  const auto group = JoinTest(port, 1, 2);
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  auto led = leader.get();
  ASSERT_TRUE(led.ok()) << led.status().ToString();
  EXPECT_TRUE((*group)->Send(0, BytesOfText("hello")).ok());
  EXPECT_EQ(*(*led)->Receive(1, AfterLong()), BytesOfText("hello"));
}

// Rank 1 of two, byte for byte.
class RawRank1 {
 public:
  explicit RawRank1(const FreePort& port) : control_(port) {
    control_.SaySlowly(RawHello(1, 1, 2));
    const auto answer = control_.Hear(24);
    EXPECT_EQ(std::vector(answer.begin(), answer.begin() + 16),
              BytesOfText("inflrank" + LittleEndian(1, 4) + LittleEndian(2 * 24, 4)));
    uint64_t group = 0;
    std::memcpy(&group, &answer[16], sizeof group);
    const auto places = control_.Hear(2 * 24);
    EXPECT_EQ(std::vector(places.begin(), places.begin() + 8),
              BytesOfText(LittleEndian(port.number(), 4) + LittleEndian(1, 4)));
    data_ = std::make_unique<RawClient>(port);
    data_->SaySlowly(RawHello(2, 1, 2, group));
    control_.Say(LittleEndian(1, 4) + LittleEndian(1, 4));                              // ready
    EXPECT_EQ(control_.Hear(8), BytesOfText(LittleEndian(2, 4) + LittleEndian(0, 4)));  // go
  }

  RawClient& data() { return *data_; }

 private:
  RawClient control_;
  std::unique_ptr<RawClient> data_;
};

RawClient AcceptRaw(const Descriptor& listener) {
  while (true) {
    auto socket = Accept(listener);
    if (socket.ok()) return RawClient(*std::move(socket));
    std::this_thread::yield();
  }
}

TEST(RendezvousFaults, GroupIsMetThoughRank0LeavesAtOnce) {
  const FreePort port;
  const auto listener = Listen("127.0.0.1", port.number());
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  auto rank = std::async(std::launch::async, [&port] { return JoinTest(port, 1, 2); });
  {
    RawClient control = AcceptRaw(*listener);
    const auto joining = control.Hear(72);
    EXPECT_EQ(std::vector(joining.begin(), joining.begin() + 24),
              BytesOfText("inflrank" + LittleEndian(1, 4) + LittleEndian(1, 4) +
                          LittleEndian(1, 4) + LittleEndian(2, 4)));
    control.Say("inflrank" + LittleEndian(1, 4) + LittleEndian(48, 4) + LittleEndian(77, 8) +
                LittleEndian(port.number(), 4) + LittleEndian(1, 4) + std::string(16, '\0') +
                std::string(24, '\0'));
    RawClient data = AcceptRaw(*listener);
    const auto hello = data.Hear(72);
    EXPECT_EQ(std::vector(hello.begin() + 32, hello.begin() + 40),
              BytesOfText(LittleEndian(77, 8)));
    EXPECT_EQ(control.Hear(8), BytesOfText(LittleEndian(1, 4) + LittleEndian(1, 4)));  // ready
    data.Say(LittleEndian(uint64_t{1} << 63 | 4, 8));                                  // left
    control.Say(LittleEndian(2, 4) + LittleEndian(0, 4) +                              // go
                LittleEndian(4, 4) + LittleEndian(0, 4));                              // left
  }
  const auto group = rank.get();
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  const auto none = (*group)->Receive(0, AfterLong());
  EXPECT_EQ(none.status().code(), StatusCode::kCancelled) << none.status().ToString();
  EXPECT_TRUE((*group)->status().ok());
}

TEST(RendezvousFaults, SlowPeerIsWaitedFor) {
  const FreePort port;
  auto leader = std::async(std::launch::async, [&port] { return JoinTest(port, 0, 2); });
  RawRank1 rank(port);
  const auto group = leader.get();
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  std::thread sender([&rank] {
    rank.data().SaySlowly(BytesOfText(LittleEndian(600, 8)));
    rank.data().SaySlowly(Pattern(1, 0, 600));
  });
  EXPECT_EQ(*(*group)->Receive(1, AfterLong()), Pattern(1, 0, 600));
  EXPECT_TRUE((*group)->Send(1, BytesOfText("ok")).ok());
  EXPECT_EQ(rank.data().Hear(10), BytesOfText(LittleEndian(2, 8) + "ok"));
  sender.join();
}

TEST(RendezvousFaults, MessageBeyondTheBoundEndsTheGroup) {
  const FreePort port;
  auto leader = std::async(std::launch::async, [&port] { return JoinTest(port, 0, 2); });
  RawRank1 rank(port);
  const auto group = leader.get();
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  rank.data().Say(LittleEndian(uint64_t{1} << 40, 8));
  const auto none = (*group)->Receive(1, AfterLong());
  EXPECT_EQ(none.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(none.status().message(), HasSubstr("rank 1 announces a message of 1099511627776"));
}

TEST(RendezvousFaults, ConnectionThatEndsWithinAMessageIsALoss) {
  const FreePort port;
  auto leader = std::async(std::launch::async, [&port] { return JoinTest(port, 0, 2); });
  auto rank = std::make_unique<RawRank1>(port);
  const auto group = leader.get();
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  rank->data().Say(LittleEndian(100, 8) + "only these");
  rank = nullptr;
  const auto none = (*group)->Receive(1, AfterLong());
  EXPECT_EQ(none.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(none.status().message(), HasSubstr("rank 1 is gone"));
}

}  // namespace
}  // namespace inflight::comm
