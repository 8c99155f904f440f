// SPDX-License-Identifier: Apache-2.0
#include "comm/shared_group.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace inflight::comm {
namespace {

// Calls body(rank, its communicator, its stream) on a thread for each rank.
template <typename Body>
void OnEachRank(ThreadGroup& group, const Body& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < group.size(); ++r)
    threads.emplace_back([&, r] {
      const auto device = Device::Cpu(1);
      Stream stream(*device);
      body(r, group.rank(r), stream);
    });
  for (std::thread& thread : threads) thread.join();
}

std::vector<float> ValuesOf(int rank, int64_t n) {
  std::mt19937 random(static_cast<uint32_t>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

// In the order of ranks, in float32, as the header says.
std::vector<float> Sum(int size, int64_t n) {
  std::vector<float> sum = ValuesOf(0, n);
  for (int r = 1; r < size; ++r) {
    const std::vector<float> add = ValuesOf(r, n);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += add[i];
  }
  return sum;
}

class SharedGroupTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, SharedGroupTest, testing::Values(1, 2, 3, 4, 7));

TEST_P(SharedGroupTest, AllReduceAddsInTheOrderOfRanks) {
  ThreadGroup group(GetParam());
  for (const int64_t n :
       {int64_t{1}, int64_t{5}, int64_t{4097}, int64_t{65536}, int64_t{200'001}}) {
    const std::vector<float> expected = Sum(group.size(), n);
    std::vector<std::vector<float>> found(static_cast<size_t>(group.size()));
    OnEachRank(group, [&](int r, Communicator& comm, Stream& stream) {
      std::vector<float>& mine = found[static_cast<size_t>(r)];
      mine = ValuesOf(r, n);
      EXPECT_TRUE(comm.AllReduce({mine.data(), DType::kF32, {n}}, stream).ok());
    });
    for (const std::vector<float>& values : found) EXPECT_EQ(values, expected) << n;
  }
}

TEST_P(SharedGroupTest, AllGatherPutsTheRanksBehindEachOther) {
  ThreadGroup group(GetParam());
  for (const int64_t n : {int64_t{3}, int64_t{100'000}}) {
    std::vector<float> expected;
    for (int r = 0; r < group.size(); ++r) {
      const std::vector<float> part = ValuesOf(r, n);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    OnEachRank(group, [&](int r, Communicator& comm, Stream& stream) {
      std::vector<float> mine = ValuesOf(r, n);
      std::vector<float> all(mine.size() * static_cast<size_t>(comm.size()));
      EXPECT_TRUE(comm.AllGather({mine.data(), DType::kF32, {n}},
                                 {all.data(), DType::kF32, {comm.size(), n}}, stream)
                      .ok());
      EXPECT_EQ(all, expected);
    });
  }
}

// As often as pieces are used in turn, with ranks that are late now and then.
TEST_P(SharedGroupTest, OperationsMayFollowEachOtherAtOnce) {
  ThreadGroup group(GetParam());
  constexpr int kTimes = 2000;
  OnEachRank(group, [&](int r, Communicator& comm, Stream& stream) {
    std::mt19937 random(static_cast<uint32_t>(r));
    for (int i = 0; i < kTimes; ++i) {
      if (random() % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      std::vector<float> value(8, static_cast<float>(i + r));
      ASSERT_TRUE(comm.AllReduce({value.data(), DType::kF32, {8}}, stream).ok());
      const int sum = comm.size() * i + comm.size() * (comm.size() - 1) / 2;
      ASSERT_EQ(value, std::vector<float>(8, static_cast<float>(sum))) << i;
    }
  });
}

TEST_P(SharedGroupTest, WhatIsSentArrivesInOrder) {
  ThreadGroup group(GetParam());
  constexpr int64_t kNumValues = 150'000;  // of three pieces
  OnEachRank(group, [&](int r, Communicator& comm, Stream& stream) {
    std::vector<float> values(kNumValues);
    for (int time = 0; time < 3; ++time) {
      if (r > 0) {
        ASSERT_TRUE(comm.Receive({values.data(), DType::kF32, {kNumValues}}, r - 1, stream).ok());
      }
      if (r == 0) values = ValuesOf(time, kNumValues);
      if (r + 1 < comm.size()) {
        ASSERT_TRUE(comm.Send({values.data(), DType::kF32, {kNumValues}}, r + 1, stream).ok());
      }
      ASSERT_EQ(values, ValuesOf(time, kNumValues));
    }
  });
}

TEST(SharedGroupAbortTest, EndsWhoWaitsAndWhoComesLater) {
  ThreadGroup group(3);
  OnEachRank(group, [&](int r, Communicator& comm, Stream& stream) {
    float value = 1;
    const TensorView one = {&value, DType::kF32, {1}};
    if (r == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      comm.Abort(Internal("rank 2 has no memory"));
      comm.Abort(Internal("this comes too late"));
    }
    for (int i = 0; i < 2; ++i) {
      const Status status = r == 0   ? comm.AllReduce(one, stream)
                            : r == 1 ? comm.Receive(one, 2, stream)
                                     : comm.Send(one, 1, stream);
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_EQ(status.message(), "rank 2 has no memory");
    }
  });
}

TEST(SharedGroupProcessTest, ProcessesMayMapTheRegion) {
  constexpr int kSize = 3;
  const size_t num_bytes = SharedGroup::RegionBytes(kSize);
  void* const region =
      mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(region, MAP_FAILED);
  const auto add_up = [&](int rank) {
    const auto comm = SharedGroup::Join({static_cast<std::byte*>(region), num_bytes}, rank, kSize);
    const auto device = Device::Cpu(1);
    Stream stream(*device);
    std::vector<float> values = ValuesOf(rank, 1000);
    for (int i = 0; i < 100; ++i) {
      values = ValuesOf(rank, 1000);
      if (!comm->AllReduce({values.data(), DType::kF32, {1000}}, stream).ok()) return false;
    }
    return values == Sum(kSize, 1000);
  };
  std::vector<pid_t> children;
  for (int r = 1; r < kSize; ++r) {
    const pid_t child = fork();
    if (child == 0) _exit(add_up(r) ? 0 : 1);
    children.push_back(child);
  }
  EXPECT_TRUE(add_up(0));
  for (const pid_t child : children) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  munmap(region, num_bytes);
}

// Its first word says that an abort is being written.
TEST(SharedGroupAbortTest, OneThatNobodyFinishesEndsWhoWaits) {
  std::vector<std::byte> memory(SharedGroup::RegionBytes(2) + 64);
  void* at = memory.data();
  size_t room = memory.size();
  ASSERT_NE(std::align(64, SharedGroup::RegionBytes(2), at, room), nullptr);
  const std::span region(static_cast<std::byte*>(at), SharedGroup::RegionBytes(2));
  region.front() = std::byte{1};
  const auto comm = SharedGroup::Join(region, 0, 2);
  const auto device = Device::Cpu(1);
  Stream stream(*device);
  std::vector<float> values = ValuesOf(0, 10);
  EXPECT_EQ(comm->AllReduce({values.data(), DType::kF32, {10}}, stream).code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace inflight::comm
