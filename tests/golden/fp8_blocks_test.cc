// SPDX-License-Identifier: Apache-2.0
// Models of FP8 in blocks of 128 x 128 on the CPU, from their codes, beside the same directories
// widened to bfloat16.
#include "fp8_blocks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <string>

#include "builder/builder.h"
#include "constants.h"
#include "golden_reference.h"
#include "model/weight_slots.h"
#include "paged_model.h"
#include "worse.h"

namespace inflight::golden {
namespace {

using model::QuantAlgo;

struct Fp8Case {
  const char* model;
  const char* part;  // of the names of what is FP8
};

class Fp8BlocksTest : public testing::TestWithParam<Fp8Case> {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(testing::TempDir()) /
           ("fp8_blocks_" + std::to_string(getpid()) + GetParam().model);
    std::filesystem::remove_all(dir_);
    ASSERT_NO_FATAL_FAILURE(
        WriteFp8Blocks(DataDir() / GetParam().model, dir_ / "hf", GetParam().part));
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::shared_ptr<const model::Engine> Open(const std::filesystem::path& from,
                                            std::optional<QuantAlgo> algo = {}) {
    auto engine = builder::Open(from, *device_, {.dtype = DType::kBF16, .quant_algo = algo});
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    return engine.ok() ? *engine : nullptr;
  }
  // Logits of the whole of a prompt at once, then of 8 steps of one token.
  std::vector<std::vector<float>> Logits(const std::shared_ptr<const model::Engine>& engine,
                                         const ops::OpTable& table, const Expected& expected) {
    PagedModel paged(engine, table, *device_, 1, kBlockSize);
    const auto step = [&](std::span<const TokenId> ids) {
      const Piece piece{0, ids};
      return paged.Step({&piece, 1}, /*last_only=*/false);
    };
    std::vector<std::vector<float>> logits = step(expected.prompt);
    for (size_t i = 0; i < 8; ++i) logits.push_back(step({&expected.greedy[i], 1}).front());
    return logits;
  }

  std::filesystem::path dir_;
  std::unique_ptr<Device> device_ = Device::Cpu(2);
};

// Codes times scales are rounded where weights are widened, and not where they are read as they
// are.
TEST_P(Fp8BlocksTest, LogitsAreNearThoseOfTheWidenedWeights) {
  const auto packed = Open(dir_ / "hf");
  const auto widened = Open(dir_ / "hf", QuantAlgo::kNone);
  ASSERT_TRUE(packed != nullptr && widened != nullptr);
  EXPECT_TRUE(HasGroupedFp8(packed->config));
  EXPECT_EQ(widened->config.quant_algo, QuantAlgo::kNone);
  EXPECT_EQ(packed->weights.layers[0].fc.dtype, DType::kF8E4M3);
  for (const ops::OpTable& table : ops::CpuOpTables(model::KernelShape(packed->config)))
    for (const Expected& expected : ReadReference(DataDir() / GetParam().model)) {
      const auto got = Logits(packed, table, expected);
      const auto want = Logits(widened, table, expected);
      ASSERT_EQ(got.size(), want.size());
      float worst = 0;
      for (size_t i = 0; i < got.size(); ++i)
        for (size_t j = 0; j < got[i].size(); ++j)
          worst = Worse(worst, std::abs(got[i][j] - want[i][j]));
      EXPECT_LE(worst, 2 * RoundingBound(DType::kBF16, expected)) << table.name;
      EXPECT_GT(worst, 0) << table.name << ": something was rounded in one of them alone";
    }
}

// Linears take half the memory, and 4 bytes for each 128 of their weights.
TEST_P(Fp8BlocksTest, TheMemoryPlanCountsWhatIsInMemory) {
  const auto bytes = [&](std::optional<QuantAlgo> algo) {
    return builder::Describe(dir_ / "hf", {.dtype = DType::kBF16, .quant_algo = algo})
        .value()
        .weight_bytes;
  };
  const auto described = builder::Describe(dir_ / "hf", {.dtype = DType::kBF16});
  ASSERT_TRUE(described.ok()) << described.status().ToString();
  EXPECT_NE(described->stored_quantization.find("kept as they are stored"), std::string::npos)
      << described->stored_quantization;
  EXPECT_NE(QuantizationNote(described->config).find("FP8 weights in groups of 128"),
            std::string::npos);
  uint64_t num_weights = 0;
  model::DecoderWeights unused;
  for (const model::WeightSlot& slot : model::WeightSlots(described->config, unused))
    if (slot.is_quantized) num_weights += static_cast<uint64_t>(slot.shape.num_elements());
  EXPECT_GT(num_weights, 0);
  // Rows are padded to panels of 64 alike.
  EXPECT_LE(bytes({}) + num_weights - num_weights / 32, bytes(QuantAlgo::kNone));
}

TEST_P(Fp8BlocksTest, EveryRoadGivesTheSameAnswers) {
  ASSERT_EQ(builder::Convert(
                {.model_dir = dir_ / "hf", .output_dir = dir_ / "checkpoint", .dtype = "bfloat16"}),
            Status::Ok());
  ASSERT_EQ(
      builder::Build(
          {.checkpoint_dir = dir_ / "checkpoint", .output_dir = dir_ / "engine", .limits = {}}),
      Status::Ok());
  const Expected expected = ReadReference(DataDir() / GetParam().model).front();
  std::vector<std::vector<std::vector<float>>> answers;
  for (const char* road : {"hf", "checkpoint", "engine"}) {
    const auto engine = road == std::string("engine") ? *builder::Open(dir_ / road, *device_, {})
                                                      : Open(dir_ / road);
    ASSERT_NE(engine, nullptr);
    EXPECT_TRUE(HasGroupedFp8(engine->config)) << road;
    const auto tables = ops::CpuOpTables(model::KernelShape(engine->config));
    answers.push_back(Logits(engine, tables.front(), expected));
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(answers[0], answers[2]);
}

// The experts' router reads what float weights gave, so that no token goes to other experts.
INSTANTIATE_TEST_SUITE_P(Models, Fp8BlocksTest,
                         testing::Values(Fp8Case{"llama_head64", ".layers."},
                                         Fp8Case{"qwen2_moe_ranks", ".mlp."}),
                         [](const auto& info) { return std::string(info.param.model); });

}  // namespace
}  // namespace inflight::golden
