// SPDX-License-Identifier: Apache-2.0
#include "executor/weight_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/weight_stream.h"

namespace inflight::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kGibibyte = uint64_t{1} << 30;

// Llama 3 8B in bfloat16: 218.1 M parameters a layer, 1.05 G beside them.
constexpr uint64_t kLayerBytes = 436'240'384;
constexpr WeightSizes k8B = {
    .num_layers = 32, .total_bytes = 32 * kLayerBytes + 2'101'362'688, .layer_bytes = kLayerBytes};

model::ModelConfig Llama8B() {
  model::ModelConfig config;
  config.dtype = DType::kBF16;
  config.vocab_size = 128256;
  config.hidden_size = 4096;
  config.num_layers = 32;
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.intermediate_size = 14336;
  config.max_position_embeddings = 131072;
  return config;
}

constexpr model::EngineLimits k8BLimits{
    .max_batch_size = 16, .max_num_tokens = 2048, .max_seq_len = 8192, .max_input_len = 8000};

Result<WeightPlan> PlanOf8B(const GpuWeights& asked, uint64_t free_bytes = 80 * kGibibyte,
                            DeviceKind device = DeviceKind::kCuda, ExecutorOptions options = {}) {
  options.gpu_weights = asked;
  return PlanWeights(Llama8B(), k8BLimits, device, k8B, options, free_bytes);
}

TEST(WeightPlanTest, StreamedLayersStandEvenlyAmongThoseThatStay) {
  const WeightSizes sizes = {.num_layers = 10, .total_bytes = 1100, .layer_bytes = 100};
  EXPECT_THAT(PlanOfResident(sizes, 10).streamed, IsEmpty());
  EXPECT_THAT(PlanOfResident(sizes, 7).streamed, ElementsAre(0, 3, 6));
  EXPECT_THAT(PlanOfResident(sizes, 5).streamed, ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(PlanOfResident(sizes, 2).streamed, ElementsAre(0, 1, 2, 3, 5, 6, 7, 8));
  EXPECT_THAT(PlanOfResident(sizes, 0).streamed, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(WeightPlanTest, TheFractionBoundsWhatStays) {
  for (const double fraction : {0.0, 0.1, 0.25, 0.3, 0.5, 0.77, 0.9}) {
    const auto plan = PlanOf8B({.fraction = fraction});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const uint64_t others = k8B.total_bytes - 32 * kLayerBytes;
    const uint64_t stay = plan->device_bytes() - others;
    EXPECT_LE(static_cast<double>(stay), fraction * 32 * kLayerBytes) << fraction;
    EXPECT_GT(static_cast<double>(stay + kLayerBytes), fraction * 32 * kLayerBytes) << fraction;
    EXPECT_EQ(plan->host_bytes, plan->streamed.size() * kLayerBytes);
    EXPECT_GE(plan->ring_bytes, 2 * kLayerBytes);
    EXPECT_LT(plan->ring_bytes, 2 * kLayerBytes + 1024);
  }
  // In binary, 0.3 of 10 are a little less than 3.
  const WeightSizes ten = {.num_layers = 10, .total_bytes = 1000, .layer_bytes = 100};
  ExecutorOptions options;
  options.gpu_weights.fraction = 0.3;
  EXPECT_EQ(PlanWeights(Llama8B(), k8BLimits, DeviceKind::kCuda, ten, options, 0)->streamed.size(),
            7U);
}

// What a draft model keeps in each block leaves fewer layers room.
TEST(WeightPlanTest, BlocksAreLargerWhereADraftModelSharesThem) {
  const auto streamed = [](uint64_t draft_kv_bytes_per_block) {
    ExecutorOptions options;
    options.gpu_weights = {.as_many_as_fit = true};
    options.max_kv_tokens = 64 * 512;
    return PlanWeights(Llama8B(), k8BLimits, DeviceKind::kCuda, k8B, options, 16 * kGibibyte,
                       draft_kv_bytes_per_block)
        ->streamed.size();
  };
  // 512 blocks of 4 MiB more are 2 GiB, about five layers.
  EXPECT_GE(streamed(4 << 20), streamed(0) + 4);
}

// Two streamed layers would have a buffer each.
TEST(WeightPlanTest, AsFewAsTheRingHasBuffersStay) {
  for (const double fraction : {1.0, 0.97, 0.94}) {
    const auto plan = PlanOf8B({.fraction = fraction});
    EXPECT_THAT(plan->streamed, IsEmpty()) << fraction;
    EXPECT_EQ(plan->device_bytes(), k8B.total_bytes);
    EXPECT_EQ(plan->ring_bytes, 0U);
    EXPECT_EQ(plan->ToString({}), "");
  }
  EXPECT_EQ(PlanOf8B({.fraction = 0.93})->streamed.size(), 3U);
}

TEST(WeightPlanTest, ThePlanSaysWhatSpeedIsLeft) {
  const CopySpeed speed = {.upload_bytes_per_s = 55e9, .memory_bytes_per_s = 3e12};
  const auto half = PlanOf8B({.fraction = 0.5});
  EXPECT_EQ(half->bytes_per_step, 16 * kLayerBytes);
  EXPECT_NEAR(half->StepSeconds(speed), 16 * 0.436240384 / 55, 1e-6);  // 126.9 ms
  EXPECT_THAT(
      half->ToString(speed),
      HasSubstr("16 of 32 layers stay; the 6.50 GiB of the other 16 are in pinned host memory. "
                "A step copies 6.50 GiB at 55.0 GB/s: 126.9 ms at least, 7.88 tokens a second"));
  // A link as fast as the memory: then reading all weights takes longer than copying half.
  const CopySpeed fast = {.upload_bytes_per_s = 3e12, .memory_bytes_per_s = 3e12};
  EXPECT_NEAR(half->StepSeconds(fast), static_cast<double>(k8B.total_bytes) / 3e12, 1e-9);
}

TEST(WeightPlanTest, AsManyAsFitAreAllWhereThereIsRoom) {
  EXPECT_THAT(PlanOf8B({.as_many_as_fit = true})->streamed, IsEmpty());
}

TEST(WeightPlanTest, AsManyAsFitLeaveRoomForTheKvCache) {
  uint64_t stayed = 0;
  for (const uint64_t free_bytes : {6 * kGibibyte, 9 * kGibibyte, 12 * kGibibyte, 16 * kGibibyte}) {
    const auto plan = PlanOf8B({.as_many_as_fit = true}, free_bytes);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_GT(plan->device_bytes(), stayed) << "more memory, more layers";
    stayed = plan->device_bytes();
    const auto memory_of = [&](const WeightPlan& weights) {
      return PlanMemory(Llama8B(), k8BLimits, DeviceKind::kCuda, weights.device_bytes(),
                        /*weights_are_taken=*/false, {}, free_bytes,
                        {.ring_bytes = weights.ring_bytes, .host_bytes = weights.host_bytes});
    };
    // 128 KiB a token: a sequence of full length takes 1 GiB, or a tenth of the memory is less.
    const auto memory = memory_of(*plan);
    ASSERT_TRUE(memory.ok()) << memory.status().ToString();
    const int64_t wanted =
        std::min<int64_t>(8192, static_cast<int64_t>(free_bytes / 10 / (128 << 10)));
    EXPECT_GE(memory->kv_tokens(), wanted);
    EXPECT_LE(memory->total_bytes(), free_bytes);
    // One layer more would not.
    const int num_resident = 32 - static_cast<int>(plan->streamed.size());
    const auto larger = memory_of(PlanOfResident(k8B, num_resident + 1));
    EXPECT_TRUE(!larger.ok() || larger->kv_tokens() < wanted);
  }
}

TEST(WeightPlanTest, AsManyAsFitLeaveWhatMaxKvTokensAsksFor) {
  ExecutorOptions options;
  options.max_kv_tokens = 32768;  // 4 GiB
  const auto few = PlanOf8B({.as_many_as_fit = true}, 12 * kGibibyte, DeviceKind::kCuda, options);
  options.max_kv_tokens = 512;
  const auto many = PlanOf8B({.as_many_as_fit = true}, 12 * kGibibyte, DeviceKind::kCuda, options);
  ASSERT_TRUE(few.ok() && many.ok());
  EXPECT_GE(few->streamed.size(), many->streamed.size() + 8) << "3.9 GiB are nine layers";
}

TEST(WeightPlanTest, WhereNotEvenTheRingFitsTheErrorIsThatOfTheMemoryPlan) {
  const Status status = PlanOf8B({.as_many_as_fit = true}, 2 * kGibibyte).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("streamed weights"));
}

TEST(WeightPlanTest, FractionsOutsideAndCpusAreRefusedByName) {
  for (const double fraction : {-0.1, 1.5, 50.0}) {
    const Status status = PlanOf8B({.fraction = fraction}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("gpu_weights_percent: got "));
    EXPECT_THAT(status.message(), HasSubstr("must be in [0, 1]"));
  }
  EXPECT_TRUE(PlanOf8B({}, kGibibyte, DeviceKind::kCpu).ok());
  const Status half = PlanOf8B({.fraction = 0.5}, kGibibyte, DeviceKind::kCpu).status();
  EXPECT_EQ(half.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(half.field(), "gpu_weights_percent");
  EXPECT_THAT(half.message(), HasSubstr("got 0.5, on a CPU"));
  EXPECT_THAT(PlanOf8B({.as_many_as_fit = true}, kGibibyte, DeviceKind::kCpu).status().message(),
              HasSubstr("got auto, on a CPU"));
}

TEST(LayerRingTest, EveryLayerFollowsTheOneThatLeftItsBuffer) {
  const model::LayerRing ring(5);
  EXPECT_EQ(ring.num_copies_per_step(), 5);
  EXPECT_EQ(ring.NextInBuffer(0), 2);
  EXPECT_EQ(ring.NextInBuffer(1), 3);
  EXPECT_EQ(ring.NextInBuffer(2), 4);
  EXPECT_EQ(ring.NextInBuffer(3), 1) << "of the next step";
  EXPECT_EQ(ring.NextInBuffer(4), 0) << "of the next step";
  EXPECT_EQ(ring.num_buffers(), 2);
  EXPECT_EQ(model::LayerRing(0).num_buffers(), 0);
}

// Plays steps: whoever is computed finds its weights in its buffer.
TEST(LayerRingTest, EachStepFindsWhatTheLastOneLeft) {
  for (int num_layers = 3; num_layers < 9; ++num_layers) {
    const model::LayerRing ring(num_layers);
    std::vector<int> buffers = {0, 1};
    for (int step = 0; step < 3; ++step) {
      for (int k = 0; k < num_layers; ++k) {
        int& buffer = buffers[static_cast<size_t>(model::LayerRing::BufferOf(k))];
        ASSERT_EQ(buffer, k) << num_layers << " layers, step " << step;
        buffer = ring.NextInBuffer(k);
      }
    }
  }
  EXPECT_EQ(model::LayerRing(3).num_copies_per_step(), 2) << "the middle one has a buffer alone";
}

}  // namespace
}  // namespace inflight::executor
