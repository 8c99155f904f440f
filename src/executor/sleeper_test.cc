// SPDX-License-Identifier: Apache-2.0
#include "executor/sleeper.h"

#include <gtest/gtest.h>

#include <cstring>

namespace inflight::executor {
namespace {

constexpr size_t kWeights = 3 << 20;
constexpr size_t kKv = 2 << 20;

std::shared_ptr<ReleasableMemory> Take(Device& device, const char* name, size_t num_bytes) {
  auto memory = ReleasableMemory::Allocate(device, name, num_bytes);
  EXPECT_TRUE(memory.ok()) << memory.status().ToString();
  return *memory;
}

class SleeperTest : public ::testing::Test {
 protected:
  Sleeper Make(std::function<Status()> reload) {
    return {{.weights = {weights_}, .draft_weights = {drafts_}, .kv_cache = {kv_}},
            {.owner = "m/1",
             .reload = std::move(reload),
             .no_sleep = Status::Ok(),
             .no_reload = Unimplemented("level", "got 2, nothing to read")}};
  }

  std::unique_ptr<Device> device_ = Device::CpuWithCapacity(1, 16 << 20);
  std::shared_ptr<ReleasableMemory> weights_ = Take(*device_, "weights", kWeights);
  std::shared_ptr<ReleasableMemory> drafts_ = Take(*device_, "weights", 1 << 20);
  std::shared_ptr<ReleasableMemory> kv_ = Take(*device_, "kv cache", kKv);
};

TEST_F(SleeperTest, OnACpuLevel1GivesTheKvCacheBackAlone) {
  Sleeper sleeper = Make(nullptr);
  std::memset(weights_->data(), 5, kWeights);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(sleeper.Sleep(1).ok());
    ASSERT_TRUE(sleeper.Sleep(1).ok()) << "a second time is none";
    EXPECT_EQ(sleeper.state().level, 1);
    EXPECT_EQ(sleeper.state().weight_bytes, 0u);
    EXPECT_EQ(sleeper.state().kv_cache_bytes, kKv);
    EXPECT_EQ(sleeper.state().host_copy_bytes, 0u);
    EXPECT_EQ(weights_->data()[kWeights - 1], std::byte{5});
    ASSERT_TRUE(sleeper.Wake({}).ok());
    EXPECT_EQ(sleeper.state().level, 0);
    EXPECT_EQ(sleeper.state().kv_cache_bytes, 0u);
  }
}

TEST_F(SleeperTest, AtLevel2WeightsAreReadAgainBeforeAnybodyNeedsThem) {
  int num_reads = 0;
  Sleeper sleeper = Make([&] {
    ++num_reads;
    std::memset(weights_->data(), 6, kWeights);
    return Status::Ok();
  });
  ASSERT_TRUE(sleeper.Sleep(2).ok());
  EXPECT_EQ(sleeper.state().weight_bytes, kWeights) << "those of the draft model stay";
  EXPECT_EQ(device_->ledger().free_bytes(), (15u << 20));
  ASSERT_TRUE(sleeper.Wake({.weights = true, .kv_cache = false}).ok());
  EXPECT_EQ(sleeper.state().level, 2);
  EXPECT_EQ(sleeper.state().weight_bytes, 0u);
  EXPECT_EQ(sleeper.state().kv_cache_bytes, kKv);
  EXPECT_EQ(weights_->data()[kWeights - 1], std::byte{6});
  ASSERT_TRUE(sleeper.Wake({.weights = false, .kv_cache = true}).ok());
  EXPECT_EQ(sleeper.state().level, 0);
  EXPECT_EQ(num_reads, 1);
  // Again under the model's name.
  EXPECT_EQ(device_->ledger().entries().back().name, "m/1: kv cache");
}

TEST_F(SleeperTest, Level1BecomesLevel2AndNotTheOtherWay) {
  Sleeper sleeper = Make([] { return Status::Ok(); });
  ASSERT_TRUE(sleeper.Sleep(1).ok());
  ASSERT_TRUE(sleeper.Sleep(2).ok());
  EXPECT_EQ(sleeper.state().level, 2);
  EXPECT_EQ(sleeper.state().weight_bytes, kWeights);
  ASSERT_TRUE(sleeper.Sleep(1).ok());
  EXPECT_EQ(sleeper.state().level, 2);
  ASSERT_TRUE(sleeper.Wake({}).ok());
}

TEST_F(SleeperTest, WhereNothingCanBeReadItSleepsOn) {
  bool fails = true;
  Sleeper sleeper =
      Make([&] { return fails ? NotFound("the model's files have gone") : Status::Ok(); });
  ASSERT_TRUE(sleeper.Sleep(2).ok());
  EXPECT_EQ(sleeper.Wake({}).code(), StatusCode::kNotFound);
  EXPECT_EQ(sleeper.state().level, 2);
  EXPECT_EQ(sleeper.state().weight_bytes, kWeights);
  fails = false;
  ASSERT_TRUE(sleeper.Wake({}).ok());
  EXPECT_EQ(sleeper.state().level, 0);
}

TEST_F(SleeperTest, WhereOthersHaveTheMemoryItSleepsOn) {
  Sleeper sleeper = Make([] { return Status::Ok(); });
  ASSERT_TRUE(sleeper.Sleep(2).ok());
  auto other = device_->ledger().Take("another model's", 14 << 20);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(sleeper.Wake({}).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(sleeper.state().level, 2);
  *other = MemoryShare();
  ASSERT_TRUE(sleeper.Wake({}).ok());
  EXPECT_EQ(device_->ledger().free_bytes(), (10u << 20));
}

TEST_F(SleeperTest, WhatCannotBeIsRefusedByName) {
  Sleeper sleeper = Make(nullptr);
  for (const int level : {0, 3, -1}) {
    EXPECT_EQ(sleeper.Check(level).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(sleeper.Check(level).field(), "level");
  }
  EXPECT_EQ(sleeper.Check(2).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(sleeper.Sleep(2).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(sleeper.state().level, 0);
  const Sleeper never({}, {.owner = {},
                           .reload = nullptr,
                           .no_sleep = Unimplemented("sleep", "ranks that are processes"),
                           .no_reload = {}});
  EXPECT_EQ(never.Check(1).code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace inflight::executor
