// SPDX-License-Identifier: Apache-2.0
#include "executor/adapter_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace inflight::executor {
namespace {

using testing::HasSubstr;

std::shared_ptr<const model::Engine> EngineOf(model::LoraLimits limits = {}) {
  auto engine = std::make_shared<model::Engine>();
  engine->config = {.dtype = DType::kF32,
                    .vocab_size = 10,
                    .hidden_size = 32,
                    .num_layers = 2,
                    .num_heads = 2,
                    .num_kv_heads = 1,
                    .head_dim = 16,
                    .intermediate_size = 48,
                    .gated_mlp = true};
  engine->limits.lora = limits;
  return engine;
}

// One pair of attn_dense [32, 32] in layer 0; values are floats from `first` on.
LoraTensors Dense(float first = 1, int rank = 1) {
  LoraTensors out;
  out.rows = {{.module = 4, .layer = 0, .rank = rank}};
  out.dtype = LoraDType::kFloat32;
  out.width = 64 * rank;
  std::vector<float> values(static_cast<size_t>(out.width));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  out.weights.resize(values.size() * sizeof(float));
  std::memcpy(out.weights.data(), values.data(), out.weights.size());
  return out;
}

LoraUse UseOf(uint64_t id, LoraTensors tensors) {
  return {.id = id, .tensors = std::make_shared<const LoraTensors>(std::move(tensors))};
}

// What Dense of rank 1 takes: two rows of 32 floats and sixteen behind each.
constexpr uint64_t kDenseBytes = 2 * (32 + 16) * sizeof(float);

class AdapterCacheTest : public testing::Test {
 protected:
  std::unique_ptr<AdapterCache> Make(uint64_t num_bytes, model::LoraLimits limits = {}) {
    auto cache = AdapterCache::Create(EngineOf(limits), *device_,
                                      {.num_bytes = num_bytes, .is_booked = true});
    EXPECT_TRUE(cache.ok()) << cache.status().ToString();
    return *std::move(cache);
  }
  std::unique_ptr<Device> device_ = Device::Cpu(1);
};

// A = (1 .. 64) as [2, 32]; B = (65 .. 128) as [32, 2], which stands transposed.
TEST_F(AdapterCacheTest, FactorsStandAsKernelsReadThem) {
  const auto cache = Make(4096);
  const auto adapter = cache->Get(UseOf(3, Dense(1, 2)));
  ASSERT_TRUE(adapter.ok()) << adapter.status().ToString();
  const auto parts = (*adapter)->table.Of(0, ops::LoraSite::kDense);
  ASSERT_EQ(parts.size(), 1U);
  const ops::LoraPart& part = parts[0];
  EXPECT_EQ(part.rank, 2);
  EXPECT_EQ(part.in_features, 32);
  EXPECT_EQ(part.num_features, 32);
  const auto* a = static_cast<const float*>(part.a);
  const auto* b = static_cast<const float*>(part.b);
  EXPECT_EQ(a[0], 1);
  EXPECT_EQ(a[33], 34) << "row 1, column 1";
  EXPECT_EQ(b[0], 65);
  EXPECT_EQ(b[1], 67) << "B[1, 0]";
  EXPECT_EQ(b[32 + 1], 68) << "B[1, 1]";
  EXPECT_TRUE((*adapter)->table.Of(1, ops::LoraSite::kDense).empty());
}

// The cache has room for one; what a client brought comes again from host memory.
TEST_F(AdapterCacheTest, WhatWasGivenUpComesAgainAsItWasBrought) {
  const auto made = AdapterCache::Create(
      EngineOf({}), *device_, {.num_bytes = kDenseBytes, .is_booked = true, .host_bytes = 1 << 20});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  AdapterCache* const cache = made->get();
  ASSERT_TRUE(cache->Get(UseOf(1, Dense(1))).ok());
  ASSERT_TRUE(cache->Get(UseOf(2, Dense(100))).ok());
  const auto again = cache->Get({.id = 1});
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(static_cast<const float*>((*again)->table.Of(0, ops::LoraSite::kDense)[0].a)[0], 1);
  EXPECT_EQ(cache->num_adapters(), 1);
  EXPECT_EQ(cache->Get({.id = 2}).status().code(), StatusCode::kResourceExhausted) << "1 is in use";
  EXPECT_EQ(cache->Get({.id = 2}, /*client_id=*/5).status().code(), StatusCode::kNotFound);
}

// attn_dense of the model has no bias: what is added is all that there is.
TEST_F(AdapterCacheTest, BiasesAreChecked) {
  const auto cache = Make(8192);
  const auto with = [](std::vector<LoraTensors::Bias> biases) {
    LoraTensors tensors = Dense();
    tensors.biases = std::move(biases);
    return UseOf(1, std::move(tensors));
  };
  const std::vector<float> values(32, 0.5F);
  const auto message = [&](std::vector<LoraTensors::Bias> biases) {
    return cache->Get(with(std::move(biases))).status().message();
  };
  EXPECT_THAT(message({{.module = 4, .layer = 2, .values = values}}),
              HasSubstr("bias 0: got layer 2"));
  EXPECT_THAT(message({{.module = 99, .values = values}}), HasSubstr("bias 0: got module 99"));
  EXPECT_THAT(message({{.module = 4, .values = {1}}}),
              HasSubstr("got 1 values, attn_dense has 32"));
  EXPECT_THAT(message({{.module = 4, .values = values}, {.module = 4, .values = values}}),
              HasSubstr("bias 1: got one of attn_dense of layer 0 a second time"));
  std::vector<float> infinite = values;
  infinite[31] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(message({{.module = 4, .values = infinite}}), HasSubstr("not finite"));
  const auto adapter = cache->Get(with({{.module = 4, .layer = 1, .values = values}}));
  ASSERT_TRUE(adapter.ok()) << adapter.status().ToString();
  EXPECT_EQ((*adapter)->num_bytes, kDenseBytes + 32 * sizeof(float));
  const auto parts = (*adapter)->table.Of(1, ops::LoraSite::kDense);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(std::vector<float>(parts[0].bias, parts[0].bias + 32), values);
}

TEST_F(AdapterCacheTest, StatsNameThoseOfTheProgramAndSayHowManyFit) {
  const auto cache = Make(5 * kDenseBytes);
  EXPECT_EQ(cache->stats().max_adapters, AdapterCache::kMaxAdapters) << "no size is known";
  const auto use = [&](uint64_t id, bool is_own, int rank) {
    LoraUse made = UseOf(id, Dense(1, rank));
    made.is_own = is_own;
    EXPECT_TRUE(cache->Get(made, /*client_id=*/1).ok());
  };
  use(7, /*is_own=*/true, 1);
  EXPECT_EQ(cache->stats().max_adapters, 5);
  use(8, /*is_own=*/false, 1);
  use(9, /*is_own=*/true, 1);
  EXPECT_EQ(cache->stats().own_ids, (std::vector<uint64_t>{9, 7}));
  use(7, /*is_own=*/true, 1);
  EXPECT_EQ(cache->stats().own_ids, (std::vector<uint64_t>{7, 9}));
  EXPECT_EQ(cache->stats().max_adapters, 5);
}

TEST_F(AdapterCacheTest, AnIdAloneNamesWhatCameBeforeAndLaterWeightsAreIgnored) {
  const auto cache = Make(4096);
  const auto missing = cache->Get({.id = 0});
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.status().message(),
            "LoRA task 0 not found in cache. Please send LoRA weights with request");
  const auto first = cache->Get(UseOf(0, Dense(1)));
  EXPECT_EQ(*cache->Get({.id = 0}), *first);
  EXPECT_EQ(*cache->Get(UseOf(0, Dense(1000))), *first);
  EXPECT_EQ(cache->num_adapters(), 1);
  EXPECT_EQ(cache->Get({.id = 0, .is_own = true}).status().code(), StatusCode::kNotFound);
}

TEST_F(AdapterCacheTest, AnIdIsOfTheClientThatSentIt) {
  const auto cache = Make(4096);
  const auto first = *cache->Get(UseOf(1, Dense(1)), /*client_id=*/5);
  EXPECT_EQ(cache->Get({.id = 1}, /*client_id=*/6).status().code(), StatusCode::kNotFound);
  const auto second = *cache->Get(UseOf(1, Dense(2)), /*client_id=*/6);
  EXPECT_NE(first, second);
  EXPECT_EQ(*cache->Get({.id = 1}, /*client_id=*/5), first);
}

TEST_F(AdapterCacheTest, WhatIsReadIsReadOnceForAllClients) {
  const auto cache = Make(4096);
  int num_reads = 0;
  const LoraUse use = {.id = 1, .is_own = true, .read = [&] {
                         ++num_reads;
                         return Result(std::make_shared<const LoraTensors>(Dense()));
                       }};
  EXPECT_EQ(*cache->Get(use, 5), *cache->Get(use, 6));
  EXPECT_EQ(num_reads, 1);
  const LoraUse bad = {.id = 2, .is_own = true, .read = [] {
                         return Result<std::shared_ptr<const LoraTensors>>(NotFound("gone"));
                       }};
  EXPECT_EQ(cache->Get(bad).status().message(), "gone");
}

TEST_F(AdapterCacheTest, TheLeastRecentlyUsedThatNobodyHasGoesFirst) {
  const auto cache = Make(3 * kDenseBytes);
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(cache->Get(UseOf(id, Dense())).ok());
  auto held = *cache->Get({.id = 2});
  ASSERT_TRUE(cache->Get({.id = 1}).ok());  // 3 is now the oldest, 2 is held
  ASSERT_TRUE(cache->Get(UseOf(4, Dense())).ok());
  EXPECT_FALSE(cache->Get({.id = 3}).ok());
  ASSERT_TRUE(cache->Get(UseOf(5, Dense())).ok());
  EXPECT_FALSE(cache->Get({.id = 1}).ok()) << "older than 4; 2 is in use";
  EXPECT_TRUE(cache->Get({.id = 2}).ok());
  EXPECT_TRUE(cache->Get({.id = 4}).ok());
  EXPECT_EQ(cache->used_bytes(), 3 * kDenseBytes);
}

TEST_F(AdapterCacheTest, WhereAllAreInUseANewOneIsRefused) {
  const auto cache = Make(2 * kDenseBytes);
  std::vector<std::shared_ptr<const model::Adapter>> held = {*cache->Get(UseOf(1, Dense())),
                                                             *cache->Get(UseOf(2, Dense()))};
  const Status full = cache->Get(UseOf(3, Dense())).status();
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("PEFT Cache is full. Could not store taskId=3"));
  held.pop_back();
  EXPECT_TRUE(cache->Get(UseOf(3, Dense())).ok());
}

// Evicted and sent again with other weights: what requests share blocks by is another.
TEST_F(AdapterCacheTest, NoTwoAdaptersOfAnIdHaveOneSerial) {
  const auto cache = Make(kDenseBytes);
  const uint64_t first = (*cache->Get(UseOf(1, Dense())))->serial;
  ASSERT_TRUE(cache->Get(UseOf(2, Dense())).ok());
  EXPECT_NE((*cache->Get(UseOf(1, Dense(5))))->serial, first);
}

TEST_F(AdapterCacheTest, AFloodOfIdsStaysWithinItsMemory) {
  const auto cache = Make(5 * kDenseBytes + 100);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 200; ++i) {
        const auto got = cache->Get(UseOf(t * 100 + i, Dense(1, 1 + static_cast<int>(i % 2))));
        EXPECT_TRUE(got.ok() || got.status().code() == StatusCode::kResourceExhausted);
        EXPECT_LE(cache->used_bytes(), cache->max_bytes());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache->num_adapters(), 5);
  EXPECT_GE(cache->num_adapters(), 1);
}

TEST_F(AdapterCacheTest, WhatFitsNeverIsToldSo) {
  const auto cache = Make(kDenseBytes);
  const Status status = cache->Get(UseOf(1, Dense(1, 2))).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("the adapter takes 640 bytes, the cache of adapters has "
                                          "384"));
}

TEST_F(AdapterCacheTest, TensorsOfAnotherModelAreRefusedByRow) {
  struct Case {
    std::string message;
    LoraTensors tensors;
    model::LoraLimits limits = {};
  };
  const auto with = [](auto change, int rank = 1) {
    LoraTensors tensors = Dense(1, rank);
    change(tensors);
    return tensors;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Case> cases = {
      {"row 0: got layer 2. Expected layerId to be in the range [0, 2)",
       with([](LoraTensors& t) { t.rows[0].layer = 2; })},
      {"row 0: got rank 0. Expected adapterSize to be > 0",
       with([](LoraTensors& t) { t.rows[0].rank = 0; })},
      {"row 0: Invalid low_rank (257). low_rank must be at most max_lora_rank (256)",
       Dense(1, 257)},
      {"row 0: Invalid low_rank (9). low_rank must be at most max_lora_rank (8)",
       Dense(1, 9),
       {.max_rank = 8}},
      {"row 0: lora module cross_attn_q not enabled for this model",
       with([](LoraTensors& t) { t.rows[0].module = 9; })},
      {"row 0: lora module attn_dense not enabled for this model", Dense(), {.modules = 0b1110}},
      {"row 0: got module 18, must be in [0, 18)",
       with([](LoraTensors& t) { t.rows[0].module = 18; })},
      {"row 0: lora_weights has to few values for attn_dense: got 64, rank 2 needs 128",
       with([](LoraTensors& t) { t.rows[0].rank = 2; })},
      {"row 0: got a value that is not finite in float32, the model's dtype",
       with([&](LoraTensors& t) { std::memcpy(t.weights.data() + 40, &nan, sizeof(nan)); })},
      {"row 1: got module attn_dense of layer 0 a second time, one row is allowed",
       with([](LoraTensors& t) {
         t.rows.push_back(t.rows[0]);
         t.weights.resize(2 * t.weights.size());
       })},
      {"got 256 bytes, 2 rows of 64 values are 512",
       with([](LoraTensors& t) { t.rows.push_back({.module = 1, .layer = 0, .rank = 1}); })},
      {"got no rows, an adapter needs at least one", LoraTensors{}},
  };
  for (const Case& c : cases) {
    const auto cache = Make(1 << 20, c.limits);
    const Status status = cache->Get(UseOf(1, c.tensors)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(status.message(), HasSubstr(c.message));
    EXPECT_EQ(cache->num_adapters(), 0);
    EXPECT_EQ(cache->used_bytes(), 0U);
  }
}

TEST(FreeRanges, NeighboursAreJoined) {
  FreeRanges ranges(100);
  const size_t a = *ranges.Take(30);
  const size_t b = *ranges.Take(30);
  const size_t c = *ranges.Take(40);
  EXPECT_EQ(ranges.Take(1), std::nullopt);
  ranges.Give(a, 30);
  ranges.Give(c, 40);
  EXPECT_EQ(ranges.num_ranges(), 2U);
  EXPECT_EQ(ranges.Take(41), std::nullopt);
  ranges.Give(b, 30);
  EXPECT_EQ(ranges.num_ranges(), 1U);
  EXPECT_EQ(ranges.Take(100), 0U);
}

}  // namespace
}  // namespace inflight::executor
