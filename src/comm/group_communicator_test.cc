// SPDX-License-Identifier: Apache-2.0
#include "comm/group_communicator.h"

#include <gtest/gtest.h>

#include <random>

#include "comm/rendezvous_fixture.h"

namespace inflight::comm {
namespace {

std::vector<float> Random(int rank, size_t n) {
  std::mt19937 random(static_cast<uint32_t>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

TensorView ViewOf(std::vector<float>& values) {
  return {values.data(), DType::kF32, {static_cast<int64_t>(values.size())}};
}

// Sizes that ranks divide and such that they do not, fewer than ranks too.
TEST(GroupCommunicatorTest, AllReduceAddsInTheOrderOfRanks) {
  for (const int size : {2, 3, 4}) {
    const FreePort port;
    RunRanks(port, 0, size, [&](Group& group) {
      std::vector<int> members;
      for (int r = 0; r < size; ++r) members.push_back(r);
      const auto comm = MakeGroupCommunicator(group, members);
      const auto device = Device::Cpu(1);
      Stream stream(*device);
      for (const size_t n : {1U, 3U, 4096U, 100'003U}) {
        std::vector<float> expected = Random(0, n);
        for (int r = 1; r < size; ++r) {
          const std::vector<float> add = Random(r, n);
          for (size_t i = 0; i < n; ++i) expected[i] += add[i];
        }
        std::vector<float> mine = Random(group.rank(), n);
        ASSERT_TRUE(comm->AllReduce(ViewOf(mine), stream).ok());
        ASSERT_EQ(mine, expected) << size << " ranks, " << n;
      }
    });
  }
}

// As a model of two stages on two ranks each uses them, with calls of the leader in between.
TEST(GroupCommunicatorTest, GroupsOfAGroupTalkBesideItsMessages) {
  const FreePort port;
  RunRanks(port, 0, 4, [](Group& group) {
    const int stage = group.rank() / 2;
    const int t = group.rank() % 2;
    const auto tensor = MakeGroupCommunicator(group, {2 * stage, 2 * stage + 1});
    const auto pipeline = MakeGroupCommunicator(group, {t, 2 + t});
    EXPECT_EQ(tensor->rank(), t);
    EXPECT_EQ(pipeline->rank(), stage);
    const auto device = Device::Cpu(1);
    Stream stream(*device);
    for (int time = 0; time < 50; ++time) {
      const std::string call = "step " + std::to_string(time);
      if (group.rank() == 0) {
        for (int r = 1; r < 4; ++r) ASSERT_TRUE(group.Send(r, BytesOfText(call)).ok());
      } else {
        const auto told = group.Receive(0, AfterLong());
        ASSERT_TRUE(told.ok());
        ASSERT_EQ(*told, BytesOfText(call));
      }
      std::vector<float> values = Random(time, 5000);
      if (stage == 1) {
        std::fill(values.begin(), values.end(), 0.0F);
        ASSERT_TRUE(pipeline->Receive(ViewOf(values), 0, stream).ok());
      }
      ASSERT_TRUE(tensor->AllReduce(ViewOf(values), stream).ok());
      if (stage == 0) {
        ASSERT_TRUE(pipeline->Send(ViewOf(values), 1, stream).ok());
        continue;
      }
      const std::vector<float> once = Random(time, 5000);  // twice on each stage
      for (size_t i = 0; i < once.size(); ++i) ASSERT_EQ(values[i], 4 * once[i]);
      std::vector<float> all(10'000);
      ASSERT_TRUE(tensor->AllGather(ViewOf(values), ViewOf(all), stream).ok());
      for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], 4 * once[i % 5000]);
    }
  });
}

TEST(GroupCommunicatorTest, RanksThatDisagreeEndTheGroup) {
  const FreePort port;
  RunRanks(port, 0, 2, [](Group& group) {
    const auto comm = MakeGroupCommunicator(group, {0, 1});
    const auto device = Device::Cpu(1);
    Stream stream(*device);
    std::vector<float> values(group.rank() == 0 ? 10 : 11);
    const Status status = group.rank() == 0 ? comm->Send(ViewOf(values), 1, stream)
                                            : comm->Receive(ViewOf(values), 0, stream);
    if (group.rank() == 1) {
      EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    } else {
      EXPECT_FALSE(group.Receive(1, AfterLong()).ok());
    }
  });
}

}  // namespace
}  // namespace inflight::comm
