// SPDX-License-Identifier: Apache-2.0
#include "comm/host_communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>

#include "comm/rendezvous_fixture.h"

namespace inflight::comm {
namespace {

std::vector<float> Draws(int rank, size_t n) {
  std::mt19937 random(static_cast<uint32_t>(rank) + 7);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

TensorView View(std::vector<float>& values) {
  return {values.data(), DType::kF32, {static_cast<int64_t>(values.size())}};
}

// Of this process.
int NumRegionsMapped() {
  int count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("/memfd:inflight-ranks-") != std::string::npos) ++count;
  return count;
}

// Of two stages on two ranks each: sums within a stage, then what one stage sends to the other.
TEST(HostCommunicatorTest, GroupsOfAGroupSumAndSend) {
  const FreePort port;
  constexpr size_t kCount = 100'003;  // more than a piece of the region
  RunRanks(port, 0, 4, [](Group& group) {
    const int stage = group.rank() / 2;
    const int t = group.rank() % 2;
    auto tensor = MakeHostCommunicator(group, {2 * stage, 2 * stage + 1});
    ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
    auto pipeline = MakeHostCommunicator(group, {t, 2 + t});
    ASSERT_TRUE(pipeline.ok()) << pipeline.status().ToString();
    EXPECT_EQ((*tensor)->rank(), t);
    EXPECT_EQ((*pipeline)->rank(), stage);
    EXPECT_GT(NumRegionsMapped(), 0) << "messages, in place of memory";
    const auto device = Device::Cpu(1);
    Stream stream(*device);
    std::vector<float> sum = Draws(0, kCount);
    const std::vector<float> other = Draws(1, kCount);
    for (size_t i = 0; i < kCount; ++i) sum[i] += other[i];
    for (int time = 0; time < 20; ++time) {
      std::vector<float> values = Draws(t, kCount);
      if (stage == 1) {
        std::fill(values.begin(), values.end(), 0.0F);
        ASSERT_TRUE((*pipeline)->Receive(View(values), 0, stream).ok());
        ASSERT_EQ(values, sum);
        continue;
      }
      ASSERT_TRUE((*tensor)->AllReduce(View(values), stream).ok());
      ASSERT_EQ(values, sum);
      ASSERT_TRUE((*pipeline)->Send(View(values), 1, stream).ok());
    }
  });
  EXPECT_EQ(NumRegionsMapped(), 0);
}

// A rank leaves while another waits for it in shared memory.
TEST(HostCommunicatorTest, WhoWaitsHearsOfTheGroupsEnd) {
  const FreePort port;
  RunRanks(port, 0, 2, [](Group& group) {
    auto comm = MakeHostCommunicator(group, {0, 1});
    ASSERT_TRUE(comm.ok()) << comm.status().ToString();
    const auto device = Device::Cpu(1);
    Stream stream(*device);
    std::vector<float> values(10);
    if (group.rank() == 1) return group.Abort(Internal("no more"));
    const Status failed = (*comm)->AllReduce(View(values), stream);
    EXPECT_EQ(failed.code(), StatusCode::kUnavailable);
    EXPECT_NE(failed.message().find("rank 1"), std::string::npos) << failed.ToString();
    EXPECT_EQ((*comm)->AllReduce(View(values), stream).code(), StatusCode::kUnavailable);
  });
}

TEST(HostCommunicatorTest, AbortEndsTheGroupToo) {
  const FreePort port;
  RunRanks(port, 0, 2, [](Group& group) {
    auto comm = MakeHostCommunicator(group, {0, 1});
    ASSERT_TRUE(comm.ok()) << comm.status().ToString();
    if (group.rank() == 1) {
      (*comm)->Abort(Internal("no more"));
      EXPECT_FALSE(group.status().ok());
      return;
    }
    EXPECT_EQ(group.Receive(1, AfterLong()).status().code(), StatusCode::kUnavailable);
  });
}

// As of ranks on two hosts: one of them finds no region, and both send messages.
TEST(HostCommunicatorTest, MembersWithoutCommonMemorySendMessages) {
  const FreePort port;
  RunRanks(port, 0, 2, [](Group& group) {
    std::vector<float> values = Draws(group.rank(), 10);
    if (group.rank() == 1) {
      // What another host does: it looks for the region, and has none.
      ASSERT_TRUE(group.Receive(0, AfterLong()).ok());
      ASSERT_TRUE(group.Send(0, BytesOfText("no")).ok());
      const auto decision = group.Receive(0, AfterLong());
      ASSERT_TRUE(decision.ok());
      EXPECT_EQ(*decision, BytesOfText("no"));
      const auto message = group.Receive(0, AfterLong());
      ASSERT_TRUE(message.ok());
      EXPECT_EQ(message->size(), 10 * sizeof(float));
      return;
    }
    auto comm = MakeHostCommunicator(group, {0, 1});
    ASSERT_TRUE(comm.ok()) << comm.status().ToString();
    const auto device = Device::Cpu(1);
    Stream stream(*device);
    EXPECT_TRUE((*comm)->Send(View(values), 1, stream).ok());
  });
}

// The place that a rank of another host says may be anything here.
TEST(HostCommunicatorTest, OtherFilesAreNotOpened) {
  for (const std::string place : {"1 0 inflight-ranks-0", "0 -1 x", "nonsense", "999999999 3 x"}) {
    const FreePort port;
    RunRanks(port, 0, 2, [&](Group& group) {
      if (group.rank() == 1) {
        EXPECT_TRUE(MakeHostCommunicator(group, {0, 1}).ok());
        return;
      }
      ASSERT_TRUE(group.Send(1, BytesOfText(place)).ok());
      const auto answer = group.Receive(1, AfterLong());
      ASSERT_TRUE(answer.ok());
      EXPECT_EQ(*answer, BytesOfText("no")) << place;
      ASSERT_TRUE(group.Send(1, BytesOfText("no")).ok());
    });
  }
}

}  // namespace
}  // namespace inflight::comm
