// SPDX-License-Identifier: Apache-2.0
// A follower does what its leader tells it, and notices a call that is damaged, lost or told twice.
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "base/check.h"
#include "builder/builder.h"
#include "executor/rank_leader.h"
#include "kv_cache/kv_cache.h"
#include "model/decoder.h"
#include "ops/backend.h"

namespace inflight::executor {
namespace {

using Calls = std::vector<std::vector<std::byte>>;

class Recorder : public RankFollowers {
 public:
  explicit Recorder(Calls& calls) : calls_(calls) {}
  Status Tell(std::span<const std::byte> call) override {
    calls_.emplace_back(call.begin(), call.end());
    return Status::Ok();
  }
  void Abort(const Status&) override {}

 private:
  Calls& calls_;
};

constexpr int kBlockSize = 16;

class RankCalls : public testing::Test {
 protected:
  RankCalls() {
    RankLeader leader(std::make_unique<Recorder>(calls_), kBlockSize);
    for (int block = 0; block < 3; ++block) {
      const kv_cache::BlockCopy copy = {.from = block, .to = block + 1};
      leader.Copy(/*group=*/0, {&copy, 1});
    }
    auto engine = builder::Open(std::filesystem::path(INFLIGHT_GOLDEN_DATA) / "llama_gqa2",
                                *device_, {.dtype = DType::kF32, .limits = std::nullopt});
    CHECK(engine.ok());
    engine_ = *std::move(engine);
    follower_ = MakeFollower();
  }

  std::unique_ptr<RankFollower> MakeFollower() {
    const auto ops = ops::FindOps(*device_, model::KernelShape(engine_->config), "reference");
    CHECK(ops.ok());
    auto follower = RankFollower::Create(
        engine_, *device_,
        {.max_num_tokens = 8, .max_logits = 1, .block_size = kBlockSize, .num_blocks = {4}}, *ops,
        {});
    CHECK(follower.ok());
    return *std::move(follower);
  }

  Calls calls_;
  std::shared_ptr<Device> device_ = Device::Cpu(1);
  std::shared_ptr<const model::Engine> engine_;
  std::unique_ptr<RankFollower> follower_;
};

TEST_F(RankCalls, AreDoneInTheirOrder) {
  ASSERT_EQ(calls_.size(), 3U);
  for (const auto& call : calls_) {
    const Status done = follower_->Do(call);
    EXPECT_TRUE(done.ok()) << done.ToString();
  }
}

TEST_F(RankCalls, OneThatIsLostIsNoticed) {
  ASSERT_TRUE(follower_->Do(calls_[0]).ok());
  EXPECT_EQ(follower_->Do(calls_[2]).code(), StatusCode::kDataLoss);
}

TEST_F(RankCalls, OneThatComesTwiceIsNoticed) {
  ASSERT_TRUE(follower_->Do(calls_[0]).ok());
  EXPECT_EQ(follower_->Do(calls_[0]).code(), StatusCode::kDataLoss);
}

TEST_F(RankCalls, AnyDamagedByteIsNoticed) {
  for (size_t i = 0; i < calls_[0].size(); ++i) {
    const auto follower = MakeFollower();
    auto damaged = calls_[0];
    damaged[i] ^= std::byte{4};
    EXPECT_EQ(follower->Do(damaged).code(), StatusCode::kDataLoss) << i;
  }
}

}  // namespace
}  // namespace inflight::executor
