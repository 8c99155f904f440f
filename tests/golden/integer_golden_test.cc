// SPDX-License-Identifier: Apache-2.0
// int8 and int4 weights against a second implementation (make_integer_golden.py): logits for each
// road to an engine and each table of operators.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "artifact/tensor_set.h"
#include "builder/builder.h"
#include "constants.h"
#include "paged_model.h"
#include "worse.h"

namespace inflight::golden {
namespace {

using EnginePtr = std::shared_ptr<const model::Engine>;

std::filesystem::path ModelDir(const std::string& name) {
  return std::filesystem::path(INFLIGHT_GOLDEN_DATA) / name;
}

struct IntegerCase {
  const char* folder;
  model::QuantAlgo algo;
  bool has_head = false;  // in int8, too
  std::optional<int> group_size = {};
  std::string model = {};
  std::string name() const {
    return fmt::format("{}{}_{}", QuantAlgoName(algo), has_head ? "_head" : "", model);
  }
  std::filesystem::path data() const {
    return std::filesystem::path(INFLIGHT_INT8_GOLDEN_DATA).parent_path() / folder /
           (model + ".safetensors");
  }
};

std::vector<IntegerCase> IntegerCases() {
  using enum model::QuantAlgo;
  std::vector<IntegerCase> cases;
  for (const IntegerCase& kind : {IntegerCase{"int8", kW8A16},
                                  {"int4", kW4A16},
                                  {"int8_head", kW8A16, true},
                                  {"int4_head", kW4A16, true},
                                  {"int8_head_g16", kW8A16Gptq, true, 16},
                                  {"int4_head_g16", kW4A16Gptq, true, 16}})
    for (const auto& entry : std::filesystem::directory_iterator(kind.data().parent_path()))
      if (entry.path().extension() == ".safetensors") {
        cases.push_back(kind);
        cases.back().model = entry.path().stem().string();
      }
  std::ranges::sort(cases, {}, &IntegerCase::name);
  return cases;
}

template <typename T>
std::vector<T> Values(const artifact::StoredTensor& tensor) {
  std::vector<T> values(tensor.data.size() / sizeof(T));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

class IntegerGoldenTest : public testing::TestWithParam<IntegerCase> {
 protected:
  void SetUp() override {
    work_dir_ = std::filesystem::path(testing::TempDir()) /
                ("integer_golden_" + std::to_string(getpid()) + GetParam().name());
    std::filesystem::remove_all(work_dir_);
    auto set = artifact::TensorSet::OpenFile(GetParam().data());
    ASSERT_TRUE(set.ok()) << set.status().ToString();
    expected_ = *std::move(set);
  }
  void TearDown() override { std::filesystem::remove_all(work_dir_); }

  EnginePtr Open(const std::filesystem::path& dir, const builder::OpenOptions& options = {}) {
    auto engine = builder::Open(dir, *device_, options);
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    return engine.ok() ? *engine : nullptr;
  }

  // Quantised when opened, when converted, and when built.
  std::vector<EnginePtr> OpenAllRoads() {
    const auto checkpoint = work_dir_ / "checkpoint";
    const auto engine = work_dir_ / "engine";
    const auto late_engine = work_dir_ / "late_engine";
    const auto& [folder, algo, has_head, group_size, model] = GetParam();
    const std::optional<bool> head = has_head ? std::optional(true) : std::nullopt;
    EXPECT_TRUE(builder::Convert({.model_dir = ModelDir(model),
                                  .output_dir = checkpoint,
                                  .dtype = "float32",
                                  .quant_algo = algo,
                                  .group_size = group_size,
                                  .quantize_lm_head = has_head})
                    .ok());
    EXPECT_TRUE(
        builder::Build({.checkpoint_dir = checkpoint, .output_dir = engine, .limits = {}}).ok());
    EXPECT_TRUE(builder::Build({.checkpoint_dir = ModelDir(model),
                                .output_dir = late_engine,
                                .dtype = DType::kF32,
                                .quant_algo = algo,
                                .group_size = group_size,
                                .quantize_lm_head = head,
                                .limits = {}})
                    .ok());
    const builder::OpenOptions asked = {.dtype = DType::kF32,
                                        .quant_algo = algo,
                                        .group_size = group_size,
                                        .quantize_lm_head = head,
                                        .limits = {}};
    const builder::OpenOptions again = {
        .quant_algo = algo, .group_size = group_size, .quantize_lm_head = head};
    return {Open(ModelDir(model), asked), Open(checkpoint, again), Open(engine, again),
            Open(engine), Open(late_engine)};
  }

  void ExpectLogits(const EnginePtr& engine, const ops::OpTable& table) {
    for (int p = 0; expected_.Find("prompt_" + std::to_string(p)) != nullptr; ++p) {
      const std::string suffix = "_" + std::to_string(p);
      const auto wide = Values<int64_t>(*expected_.Find("prompt" + suffix));
      const auto want = Values<float>(*expected_.Find("logits" + suffix));
      const std::vector<TokenId> ids(wide.begin(), wide.end());
      PagedModel model(engine, table, *device_, 1, kBlockSize);
      const Piece piece{0, ids};
      const auto logits = model.Step({&piece, 1}, /*last_only=*/false);
      ASSERT_EQ(logits.size(), ids.size());
      float worst = 0;
      for (size_t t = 0; t < ids.size(); ++t)
        for (size_t v = 0; v < logits[t].size(); ++v)
          worst = Worse(worst, std::fabs(logits[t][v] - want[t * logits[t].size() + v]));
      // Integer sums are exact, and the prompts keep clear of rounding ties.
      EXPECT_LE(worst, kTolerance) << table.name << ", prompt " << p;
    }
  }

  std::unique_ptr<Device> device_ = Device::Cpu(2);
  std::filesystem::path work_dir_;
  artifact::TensorSet expected_;
};

TEST_P(IntegerGoldenTest, LogitsEqualTheSecondImplementation) {
  const std::vector<EnginePtr> engines = OpenAllRoads();
  const model::ModelConfig& config = engines[0]->config;
  const auto tables = ops::CpuOpTables({.weight_dtype = model::LinearDType(config),
                                        .kv_dtype = config.dtype,
                                        .head_dim = config.head_dim,
                                        .num_heads = config.num_heads,
                                        .num_kv_heads = config.num_kv_heads});
  for (const EnginePtr& engine : engines) {
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(HasQuantizedHead(engine->config), GetParam().has_head);
    ExpectLogits(engine, tables.front());
  }
  for (size_t i = 1; i < tables.size(); ++i) ExpectLogits(engines.back(), tables[i]);
}

INSTANTIATE_TEST_SUITE_P(Models, IntegerGoldenTest, testing::ValuesIn(IntegerCases()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace inflight::golden
