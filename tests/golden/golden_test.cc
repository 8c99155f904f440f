// SPDX-License-Identifier: Apache-2.0
// Tiny models against transformers (make_golden.py): logits and greedy ids, for each road to an
// engine and each table of operators.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "artifact/safetensors.h"
#include "artifact/tensor_set.h"
#include "base/check.h"
#include "base/file.h"
#include "builder/builder.h"
#include "builder/hf_config.h"
#include "constants.h"
#include "float32_checks.h"
#include "golden_reference.h"
#include "model/rope.h"
#include "model/weight_slots.h"
#include "paged_model.h"

namespace inflight::golden {
namespace {

// Those of them whose configuration is such.
std::vector<std::string> ModelsThat(bool (*are_such)(const model::ModelConfig&)) {
  std::vector<std::string> names = ModelNames();
  std::erase_if(names, [&](const std::string& name) {
    const auto read = builder::ReadHfConfig(DataDir() / name);
    CHECK(read.ok());
    return !are_such(read->config);
  });
  return names;
}

using Scaling = model::RopeScaling::Kind;
using EnginePtr = std::shared_ptr<const model::Engine>;

std::vector<ops::OpTable> TablesFor(const model::ModelConfig& config) {
  return ops::CpuOpTables({.weight_dtype = config.dtype,
                           .kv_dtype = config.dtype,
                           .head_dim = config.head_dim,
                           .num_heads = config.num_heads,
                           .num_kv_heads = config.num_kv_heads});
}

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    work_dir_ = std::filesystem::path(testing::TempDir()) /
                ("golden_" + std::to_string(getpid()) + GetParam());
    std::filesystem::remove_all(work_dir_);
    expected_ = ReadReference(hf_dir());
    limits_.max_seq_len = MaxSeqLenOf(hf_dir());
    ASSERT_EQ(expected_.size(), 3U);
  }
  void TearDown() override { std::filesystem::remove_all(work_dir_); }

  std::filesystem::path hf_dir() const { return DataDir() / GetParam(); }

  EnginePtr Open(const std::filesystem::path& dir, std::optional<DType> dtype = std::nullopt) {
    const bool is_engine = dir == work_dir_ / "engine";
    // What is packed is widened: transformers' numbers are of plain weights and activations.
    auto engine = builder::Open(
        dir, *device_,
        {.dtype = dtype,
         .quant_algo = dir == hf_dir() ? std::optional(model::QuantAlgo::kNone) : std::nullopt,
         .limits = is_engine ? std::nullopt : std::optional(limits_)});
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    return engine.ok() ? *engine : nullptr;
  }

  // What tables beside the best one run: operators are compared on all shapes in tests/ops.
  std::span<const Expected> OnePrompt() const { return std::span(expected_).subspan(1, 1); }

  // Calls check(engine, table, prompts) for every road with the best table and all prompts, and on
  // the last road for one prompt with each other table: EveryRoadGivesTheSameWeights makes the
  // other pairs repetitions.
  template <typename Check>
  void ForRoadsAndTables(const Check& check) {
    const std::vector<EnginePtr> engines = OpenAllRoads(DType::kF32);
    const std::vector<ops::OpTable> tables = TablesFor(engines[0]->config);
    ASSERT_EQ(tables.back().name, "reference");
    for (const EnginePtr& engine : engines) check(engine, tables.front(), std::span(expected_));
    for (size_t i = 1; i < tables.size(); ++i) check(engines.back(), tables[i], OnePrompt());
  }

  // Calls check(table, expected) for all prompts with the best table, and for one prompt with each
  // of the others but the last, the reference, which is slow: tests/ops holds each table to it in
  // every type, and determinism_test.cc has its chunks.
  template <typename Check>
  void ForTablesAndPrompts(const EnginePtr& engine, const Check& check) {
    const std::vector<ops::OpTable> tables = TablesFor(engine->config);
    for (const Expected& expected : expected_) check(tables.front(), expected);
    for (size_t i = 1; i + 1 < tables.size(); ++i) check(tables[i], OnePrompt().front());
  }

  // The model through all three roads, in `dtype`.
  std::vector<EnginePtr> OpenAllRoads(DType dtype) {
    const auto checkpoint = work_dir_ / "checkpoint";
    const auto engine = work_dir_ / "engine";
    const Status converted = builder::Convert({.model_dir = hf_dir(),
                                               .output_dir = checkpoint,
                                               .dtype = std::string(DTypeName(dtype)),
                                               .quant_algo = model::QuantAlgo::kNone});
    EXPECT_TRUE(converted.ok()) << converted.ToString();
    const Status built =
        builder::Build({.checkpoint_dir = checkpoint, .output_dir = engine, .limits = limits_});
    EXPECT_TRUE(built.ok()) << built.ToString();
    return {Open(hf_dir(), dtype), Open(checkpoint), Open(engine)};
  }

  std::unique_ptr<Device> device_ = Device::Cpu(2);
  std::filesystem::path work_dir_;
  std::vector<Expected> expected_;
  model::EngineLimits limits_ = model::ServedAsItIs();
};

// Logits of every position of `ids`, fed in pieces of the sizes in `chunks`, repeated.
std::vector<std::vector<float>> AllLogits(const EnginePtr& engine, const ops::OpTable& table,
                                          Device& device, std::span<const TokenId> ids,
                                          std::span<const size_t> chunks) {
  PagedModel model(engine, table, device, 1, kBlockSize);
  return AllLogits(model, ids, chunks);
}

// The bytes of every weight, in the order of the slots.
std::vector<std::span<const std::byte>> WeightBytesOf(const model::Engine& engine) {
  model::DecoderWeights weights;
  const auto slots = model::WeightSlots(engine.config, weights);
  weights = engine.weights;  // the slots point into the same layers
  std::vector<std::span<const std::byte>> bytes;
  for (const model::WeightSlot& slot : slots) {
    const void* data = model::DataOf(slot);
    bytes.emplace_back(static_cast<const std::byte*>(data),
                       model::StoredBytes(engine.config, slot, DeviceKind::kCpu));
  }
  return bytes;
}

TEST_P(GoldenTest, EveryRoadGivesTheSameWeights) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const std::vector<EnginePtr> engines = OpenAllRoads(dtype);
    const auto first = WeightBytesOf(*engines[0]);
    for (const EnginePtr& engine : engines) {
      const auto other = WeightBytesOf(*engine);
      ASSERT_EQ(first.size(), other.size());
      for (size_t i = 0; i < first.size(); ++i)
        EXPECT_TRUE(std::ranges::equal(first[i], other[i])) << "slot " << i;
      EXPECT_EQ(engine->config.end_ids, engines[0]->config.end_ids);
      const bool is_short =
          engine->config.rope_scaling.kind == Scaling::kLongRope && limits_.max_seq_len == 0;
      EXPECT_EQ(engine->limits.max_seq_len, is_short ? model::OriginalLength(engine->config)
                                                     : engine->config.max_position_embeddings);
    }
  }
}

// Models that two ranks can share.
class ShardedGoldenTest : public GoldenTest {};

// The layout of a shard is checked in src/builder/sharding_test.cc and tests/tools; here every
// family's tensors go to two ranks and back.
TEST_P(ShardedGoldenTest, ShardsOfTwoRanksGiveTheSameWeights) {
  const EnginePtr whole = Open(hf_dir());
  const auto dir = work_dir_ / "shards";
  const Status converted = builder::Convert(
      {.model_dir = hf_dir(), .output_dir = dir, .dtype = "float32", .tp_size = 2});
  ASSERT_TRUE(converted.ok()) << converted.ToString();
  const EnginePtr merged = Open(dir);
  const auto first = WeightBytesOf(*whole);
  const auto other = WeightBytesOf(*merged);
  ASSERT_EQ(first.size(), other.size());
  for (size_t i = 0; i < first.size(); ++i)
    EXPECT_TRUE(std::ranges::equal(first[i], other[i])) << "slot " << i;
}

TEST_P(GoldenTest, Float32LogitsEqualTransformers) {
  ForRoadsAndTables(
      [&](const EnginePtr& engine, const ops::OpTable& table, std::span<const Expected> prompts) {
        for (const Expected& expected : prompts) {
          const auto ids = expected.Whole();
          const size_t whole[] = {ids.size()};
          const Difference d = Compare(expected, AllLogits(engine, table, *device_, ids, whole));
          EXPECT_LE(d.worst, kTolerance) << table.name << ": " << Describe(d);
        }
      });
}

TEST_P(GoldenTest, ChunkedPrefillGivesTheSameLogits) {
  const EnginePtr engine = Open(hf_dir());
  ForTablesAndPrompts(engine, [&](const ops::OpTable& table, const Expected& expected) {
    const auto ids = expected.Whole();
    const size_t whole[] = {ids.size()};
    const size_t chunks[] = {1, 7, 64, 3, 16, 130};
    EXPECT_EQ(AllLogits(engine, table, *device_, ids, chunks),
              AllLogits(engine, table, *device_, ids, whole))
        << table.name;
  });
}

// With the best table; with each other for a while, since Float32LogitsEqualTransformers has its
// logits of the whole text.
TEST_P(GoldenTest, GreedyIdsEqualTransformersOver256Steps) {
  constexpr size_t kFewSteps = 48;
  const EnginePtr engine = Open(hf_dir(), DType::kF32);
  const std::vector<ops::OpTable> tables = TablesFor(engine->config);
  for (size_t i = 0; i < tables.size(); ++i) {
    const std::span<const Expected> prompts = i == 0 ? std::span(expected_) : OnePrompt();
    const size_t num_steps = i == 0 ? 256 : kFewSteps;
    const auto ids = Greedy(engine, tables[i], *device_, prompts, num_steps);
    ASSERT_EQ(ids.size(), prompts.size());
    for (size_t s = 0; s < ids.size(); ++s) {
      std::vector<TokenId> expected = prompts[s].greedy;
      ASSERT_EQ(expected.size(), 256U);
      expected.resize(num_steps);
      EXPECT_EQ(ids[s], expected) << tables[i].name << ", prompt " << s;
    }
  }
}

// Models whose logits follow their weights without a jump: rounding may give a token other experts.
class SmoothGoldenTest : public GoldenTest {};

TEST_P(SmoothGoldenTest, SixteenBitLogitsStayNearFloat32) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const EnginePtr engine = Open(hf_dir(), dtype);
    ForTablesAndPrompts(engine, [&](const ops::OpTable& table, const Expected& expected) {
      const auto ids = expected.Whole();
      const size_t whole[] = {ids.size()};
      const Difference d = Compare(expected, AllLogits(engine, table, *device_, ids, whole));
      const float bound = RoundingBound(dtype, expected);
      EXPECT_LE(d.worst, bound) << DTypeName(dtype) << ", " << table.name << ": " << Describe(d);
    });
  }
}

// Row 2j of the interleaved form is row j of the half-split form, row 2j + 1 is row j + head_dim
// / 2.
std::vector<float> Interleave(std::vector<float> rows, int64_t width, int head_dim,
                              int64_t num_rotated_heads) {
  std::vector<float> out = rows;
  for (int64_t head = 0; head < num_rotated_heads; ++head)
    for (int r = 0; r < head_dim; ++r) {
      const int from = r / 2 + r % 2 * (head_dim / 2);
      std::copy_n(rows.begin() + (head * head_dim + from) * width, width,
                  out.begin() + (head * head_dim + r) * width);
    }
  return out;
}

// Rewrites a checkpoint of half-split rotary heads into one of interleaved heads: the same model.
void InterleaveCheckpoint(const std::filesystem::path& dir, const model::ModelConfig& config) {
  auto json = nlohmann::json::parse(*ReadFile(dir / "config.json"));
  json["position_embedding_type"] = "rope_gptj";
  ASSERT_TRUE(WriteFile(dir / "config.json", json.dump()).ok());
  const auto set = artifact::TensorSet::OpenFile(dir / "rank0.safetensors");
  ASSERT_TRUE(set.ok());
  std::vector<artifact::TensorSpec> specs;
  for (const auto& tensor : set->tensors())
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  auto writer = artifact::SafetensorsWriter::Create(dir / "rank0.safetensors", specs);
  ASSERT_TRUE(writer.ok());
  for (const auto& tensor : set->tensors()) {
    auto values = ValuesOf<float>(*set, tensor.name);
    const int64_t width = tensor.shape.rank() == 1 ? 1 : config.hidden_size;
    if (tensor.name.ends_with("qkv.weight") || tensor.name.ends_with("qkv.bias"))
      values = Interleave(values, width, config.head_dim, config.num_heads + config.num_kv_heads);
    if (tensor.name.ends_with("q_layernorm.weight") || tensor.name.ends_with("k_layernorm.weight"))
      values = Interleave(values, width, config.head_dim, 1);
    ASSERT_TRUE(writer->Append(std::as_bytes(std::span(values))).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
}

// Models with rotary positions of whole heads, whose norms are the same for all heads: those that
// InterleaveCheckpoint permutes.
class RotaryGoldenTest : public GoldenTest {};

TEST_P(RotaryGoldenTest, InterleavedRotaryHeadsGiveTheSameLogits) {
  const EnginePtr half_split = Open(hf_dir());
  const auto dir = work_dir_ / "interleaved";
  ASSERT_TRUE(
      builder::Convert({.model_dir = hf_dir(), .output_dir = dir, .dtype = "float32"}).ok());
  InterleaveCheckpoint(dir, half_split->config);
  const EnginePtr engine = Open(dir);
  ASSERT_EQ(engine->config.position, model::PositionKind::kRopeGptj);
  // Every table rotates such heads in tests/ops, and in the tests above those of GPT-J.
  const ops::OpTable table = TablesFor(engine->config).front();
  const auto ids = expected_[1].Whole();
  const size_t whole[] = {ids.size()};
  const Difference d = Compare(expected_[1], AllLogits(engine, table, *device_, ids, whole));
  EXPECT_LE(d.worst, kTolerance) << table.name << ": " << Describe(d);
}

constexpr auto kName = [](const testing::TestParamInfo<std::string>& info) { return info.param; };

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, testing::ValuesIn(ModelNames()), kName);
INSTANTIATE_TEST_SUITE_P(Models, ShardedGoldenTest,
                         testing::ValuesIn(ModelsThat([](const model::ModelConfig& config) {
                           return config.num_heads % 2 == 0 && config.intermediate_size % 2 == 0 &&
                                  config.expert_intermediate_size % 128 == 0 &&
                                  !config.has_wide_qk_norm;
                         })),
                         kName);
INSTANTIATE_TEST_SUITE_P(Models, SmoothGoldenTest,
                         testing::ValuesIn(ModelsThat([](const model::ModelConfig& config) {
                           return config.experts_per_token == config.num_experts;
                         })),
                         kName);
INSTANTIATE_TEST_SUITE_P(Models, RotaryGoldenTest,
                         testing::ValuesIn(ModelsThat([](const model::ModelConfig& config) {
                           return config.position == model::PositionKind::kRopeNeox &&
                                  config.rotary_fraction == 1 && !config.has_wide_qk_norm &&
                                  config.rope_scaling.kind != Scaling::kLongRope;
                         })),
                         kName);
// INFLIGHT_GOLDEN_MODELS may name models without such.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ShardedGoldenTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SmoothGoldenTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RotaryGoldenTest);

}  // namespace
}  // namespace inflight::golden
