// SPDX-License-Identifier: Apache-2.0
#include "tensor/releasable_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tensor/test_gpu.h"

namespace inflight {
namespace {

constexpr size_t kBytes = (size_t{6} << 20) + 100;

// Pages of the range that the system holds for this process.
size_t NumResidentPages(const std::byte* data, size_t num_bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((num_bytes + page - 1) / page);
  if (mincore(const_cast<std::byte*>(data), num_bytes, pages.data()) != 0) return 0;
  return static_cast<size_t>(
      std::ranges::count_if(pages, [](unsigned char flags) { return (flags & 1) != 0; }));
}

TEST(ReleasableMemoryTest, GivesItsPagesBackAndKeepsItsAddress) {
  const auto device = Device::CpuWithCapacity(1, 8 << 20);
  const auto made = ReleasableMemory::Allocate(*device, "kv cache", kBytes);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  ReleasableMemory& memory = **made;
  std::byte* const data = memory.data();
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(memory.is_there());
    EXPECT_EQ(device->ledger().free_bytes(), (8 << 20) - kBytes);
    EXPECT_EQ(std::ranges::count(data, data + kBytes, std::byte{0}),
              static_cast<ptrdiff_t>(kBytes));
    std::memset(data, 7, kBytes);
    EXPECT_GT(NumResidentPages(data, kBytes), 1000u);
    ASSERT_TRUE(memory.Release().ok());
    EXPECT_FALSE(memory.is_there());
    EXPECT_EQ(NumResidentPages(data, kBytes), 0u);
    EXPECT_EQ(device->ledger().free_bytes(), 8 << 20);
    ASSERT_TRUE(memory.Release().ok()) << "a second time is none";
    ASSERT_TRUE(memory.TakeBack().ok());
    ASSERT_TRUE(memory.TakeBack().ok());
    EXPECT_EQ(memory.data(), data);
  }
}

TEST(ReleasableMemoryTest, WhatOthersHaveTakenMeanwhileIsRefusedByName) {
  const auto device = Device::CpuWithCapacity(1, 8 << 20);
  const auto made = ReleasableMemory::Allocate(*device, "kv cache", kBytes);
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE((*made)->Release().ok());
  auto other = device->ledger().Take("another model's", 4 << 20);
  ASSERT_TRUE(other.ok());
  const Status refused = (*made)->TakeBack();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("kv cache"), std::string::npos) << refused.message();
  EXPECT_FALSE((*made)->is_there());
  *other = MemoryShare();
  EXPECT_TRUE((*made)->TakeBack().ok());
}

TEST(ReleasableMemoryTest, OnAGpuFreeMemoryRisesAndTheAddressStays) {
  NEED_TEST_GPU();
  Device& gpu = **TestGpu();
  constexpr size_t kGpuBytes = size_t{256} << 20;
  const auto made = ReleasableMemory::Allocate(gpu, "kv cache", kGpuBytes - 5);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  ReleasableMemory& memory = **made;
  std::byte* const data = memory.data();
  std::vector<std::byte> ones(1 << 20, std::byte{1});
  std::vector<std::byte> read(ones.size());
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(gpu.Copy(read.data(), data, read.size()).ok());
    EXPECT_EQ(std::ranges::count(read, std::byte{0}), std::ssize(read));
    ASSERT_TRUE(gpu.Copy(data + (100 << 20), ones.data(), ones.size()).ok());
    ASSERT_TRUE(gpu.Copy(read.data(), data + (100 << 20), read.size()).ok());
    EXPECT_EQ(read, ones);
    const uint64_t before = *cuda::FreeBytes(gpu.cuda().index);
    ASSERT_TRUE(memory.Release().ok());
    EXPECT_GE(*cuda::FreeBytes(gpu.cuda().index), before + kGpuBytes - (4 << 20));
    ASSERT_TRUE(memory.TakeBack().ok());
    EXPECT_EQ(memory.data(), data);
  }
}

}  // namespace
}  // namespace inflight
