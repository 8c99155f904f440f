// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/engine_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "builder/builder.h"
#include "builder/test_models.h"
#include "executor/memory_plan.h"
#include "loader/devices.h"
#include "tensor/cuda_runtime_calls.h"
#include "tensor/device.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kCapacity = uint64_t{256} << 20;

class EngineLoaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("inflight_engine_loader_" + std::to_string(::getpid()));
    builder::TinyLlama().Write(dir_);
    device_ = Device::CpuWithCapacity(/*num_threads=*/1, kCapacity);
    auto loader = LocalEngineLoader({.devices = Devices::Only(device_)});
    ASSERT_TRUE(loader.ok());
    load_ = std::move(*loader);
  }
  void TearDown() override { fs::remove_all(dir_); }

  // Bytes of one part of an owner's share; 0 if it has none.
  uint64_t Taken(const std::string& share) const {
    for (const auto& entry : device_->ledger().entries()) {
      if (entry.name == share) return entry.bytes;
    }
    return 0;
  }

  fs::path dir_;
  std::shared_ptr<Device> device_;
  EngineLoader load_;
};

TEST_F(EngineLoaderTest, AGpuThatIsNotThereIsRefusedByTheKeyThatAsksForIt) {
  constexpr int kNowhere = 4096;
  const auto load = LocalEngineLoader({.device = "auto"});
  ASSERT_TRUE(load.ok()) << load.status().ToString();
  const Status status = (*load)(dir_, "m/1", {.max_kv_tokens = 64}, {.gpus = {kNowhere}}).status();
  EXPECT_EQ(status.code(), cuda::Probe(kNowhere).status().code());
  EXPECT_EQ(status.message(),
            "gpu_device_ids: got 4096: " + cuda::Probe(kNowhere).status().message());
}

TEST_F(EngineLoaderTest, EachModelTakesANamedShareAndReturnsAllOfIt) {
  auto large = load_(dir_, "large/1", {.max_kv_tokens = 640}, {});
  auto small = load_(dir_, "small/1", {.max_kv_tokens = 64}, {});
  ASSERT_TRUE(large.ok()) << large.status().ToString();
  ASSERT_TRUE(small.ok()) << small.status().ToString();
  EXPECT_GT(Taken("large/1: weights"), 0U);
  EXPECT_GT(Taken("small/1: weights"), 0U);
  // A block: 64 tokens, keys and values of one head of 8 floats in one layer.
  constexpr uint64_t kBlockBytes = uint64_t{64} * 2 * 8 * sizeof(float);
  EXPECT_EQ(Taken("large/1: kv cache"), 10 * kBlockBytes);
  EXPECT_EQ(Taken("small/1: kv cache"), 1 * kBlockBytes);

  large->backend = {};
  for (const auto& entry : device_->ledger().entries()) {
    EXPECT_THAT(entry.name, ::testing::StartsWith("small/1: "));
  }
  small->backend = {};
  EXPECT_THAT(device_->ledger().entries(), IsEmpty());
  EXPECT_EQ(device_->ledger().free_bytes(), kCapacity);
}

TEST_F(EngineLoaderTest, ThePlanIsWhatIsTaken) {
  const auto description = builder::Describe(dir_, {});
  ASSERT_TRUE(description.ok());
  const auto plan = executor::PlanMemory(description->config, description->limits, DeviceKind::kCpu,
                                         description->weight_bytes, /*weights_are_taken=*/false,
                                         {.max_kv_tokens = 640}, device_->ledger().free_bytes());
  ASSERT_TRUE(plan.ok());
  const auto loaded = load_(dir_, "m/1", {.max_kv_tokens = 640}, {});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(Taken("m/1: weights"), plan->weight_bytes);
  EXPECT_EQ(Taken("m/1: workspace"), plan->workspace_bytes);
  EXPECT_EQ(Taken("m/1: step inputs"), plan->step_input_bytes);
  EXPECT_EQ(Taken("m/1: sampler"), plan->sampler_bytes);
  EXPECT_EQ(Taken("m/1: kv cache"), plan->kv_bytes());
  EXPECT_EQ(device_->ledger().free_bytes(), kCapacity - plan->total_bytes()) << "nothing else";
}

TEST_F(EngineLoaderTest, AModelThatDoesNotFitTakesNothing) {
  auto first = load_(dir_, "first/1", {}, {});
  ASSERT_TRUE(first.ok());
  const uint64_t free_bytes = device_->ledger().free_bytes();
  const auto second = load_(dir_, "second/1", {.kv_cache_free_memory_fraction = 1e-9}, {});
  EXPECT_EQ(second.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(second.status().message(), HasSubstr("kv_cache_free_memory_fraction"));
  EXPECT_EQ(device_->ledger().free_bytes(), free_bytes);
}

}  // namespace
}  // namespace inflight::serving
