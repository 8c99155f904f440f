// SPDX-License-Identifier: Apache-2.0
// Engines of several ranks: which files there are, and what is said of files that do not belong
// together. What is computed with them is tests/golden/ranks_golden_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "artifact/engine_file.h"
#include "builder/builder.h"
#include "builder/test_models.h"
#include "model/weight_slots.h"

namespace inflight::builder {
namespace {

using artifact::RankMapping;
using testing::HasSubstr;

namespace fs = std::filesystem;

constexpr RankMapping kTwo = {.tp_size = 2};

class EngineRanksTest : public testing::Test {
 protected:
  EngineRanksTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ =
        fs::path(testing::TempDir()) / ("engine_ranks_" + std::to_string(getpid()) + info->name());
    fs::remove_all(dir_);
    TestModel model = TinyLlama();
    model.is_wavy = true;
    model.Write(hf());
  }
  ~EngineRanksTest() override { fs::remove_all(dir_); }

  fs::path hf() const { return dir_ / "hf"; }
  fs::path checkpoint() const { return dir_ / "checkpoint"; }
  fs::path engine() const { return dir_ / "engine"; }

  void ConvertFor(int tp_size, model::QuantAlgo algo = model::QuantAlgo::kNone) {
    const Status done = Convert({.model_dir = hf(),
                                 .output_dir = checkpoint(),
                                 .dtype = "float32",
                                 .quant_algo = algo,
                                 .tp_size = tp_size});
    ASSERT_TRUE(done.ok()) << done.ToString();
  }
  void BuildTo(const fs::path& to, const fs::path& from, BuildOptions options = {}) {
    options.checkpoint_dir = from;
    options.output_dir = to;
    const Status done = Build(options);
    ASSERT_TRUE(done.ok()) << done.ToString();
  }
  void BuildTwoRanks() { BuildTo(engine(), hf(), {.tp_size = 2}); }

  Status OpenRank(int rank, const RankMapping& ranks = kTwo) {
    return Open(engine(), *device_, {.ranks = ranks, .rank = rank}).status();
  }

  fs::path dir_;
  std::unique_ptr<Device> device_ = Device::Cpu(1);
};

// The bytes of every weight of a rank, which begin at `begin` in memory and in a file's data.
std::vector<std::string> WeightsAt(const std::byte* begin, const model::ModelConfig& config) {
  std::vector<std::string> weights;
  model::DecoderWeights unused;
  uint64_t offset = 0;
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused)) {
    const uint64_t num_bytes = model::StoredBytes(config, slot, DeviceKind::kCpu);
    weights.emplace_back(reinterpret_cast<const char*>(begin + offset), num_bytes);
    offset += artifact::EngineAlignUp(num_bytes);
  }
  return weights;
}

TEST_F(EngineRanksTest, EachRankHasAFileOfItsOwn) {
  ConvertFor(2);
  BuildTo(engine(), checkpoint());
  EXPECT_TRUE(FileExists(engine() / "rank1.engine"));
  EXPECT_FALSE(FileExists(engine() / "rank2.engine"));
  const auto config = nlohmann::json::parse(*ReadFile(engine() / "config.json"));
  EXPECT_EQ(config["pretrained_config"]["mapping"],
            nlohmann::json::parse(R"({"world_size": 2, "tp_size": 2, "pp_size": 1, "cp_size": 1,
                                      "gpus_per_node": 8})"));
  EXPECT_EQ(config["pretrained_config"]["num_attention_heads"], 2) << "of the whole model";
  EXPECT_EQ(config["rank_checksums"].size(), 2);
  for (const int rank : {0, 1}) EXPECT_TRUE(OpenRank(rank).ok()) << OpenRank(rank).ToString();

  // Without the other's file.
  fs::remove(engine() / "rank0.engine");
  EXPECT_TRUE(OpenRank(1).ok()) << OpenRank(1).ToString();
  const auto described = Describe(engine(), {.ranks = kTwo, .rank = 1});
  ASSERT_TRUE(described.ok()) << described.status().ToString();
  EXPECT_EQ(described->config.num_heads, 1);
  EXPECT_EQ(described->ranks, kTwo);
}

TEST_F(EngineRanksTest, FilesHoldWhatARankOfTheModelHas) {
  for (const auto algo :
       {model::QuantAlgo::kNone, model::QuantAlgo::kW8A16, model::QuantAlgo::kW4A16}) {
    ConvertFor(2, algo);
    for (const fs::path& from : {hf(), checkpoint()}) {  // quantised while it is built, and before
      SCOPED_TRACE(testing::Message() << model::QuantAlgoName(algo) << " of " << from);
      BuildTo(engine(), from, {.quant_algo = algo, .tp_size = 2});
      for (const int rank : {0, 1}) {
        const auto direct = Open(from, *device_, {.quant_algo = algo, .ranks = kTwo, .rank = rank});
        ASSERT_TRUE(direct.ok()) << direct.status().ToString();
        const std::string file = *ReadFile(engine() / artifact::EngineFileName(rank));
        const auto bytes = std::as_bytes(std::span(file));
        const auto table = artifact::ParseEngineTable(bytes, file.size(), "engine");
        ASSERT_TRUE(table.ok()) << table.status().ToString();
        const model::ModelConfig& config = (*direct)->config;
        EXPECT_EQ(WeightsAt(bytes.data() + table->data_offset, config),
                  WeightsAt((*direct)->buffers.front().data(), config))
            << rank;
      }
    }
  }
}

TEST_F(EngineRanksTest, FilesAreTheSameOfAModelAndOfItsCheckpoint) {
  ConvertFor(2);
  BuildTo(dir_ / "sharded", checkpoint());
  BuildTwoRanks();
  for (const char* name : {"rank0.engine", "rank1.engine"})
    EXPECT_EQ(*ReadFile(dir_ / "sharded" / name), *ReadFile(engine() / name)) << name;
}

TEST_F(EngineRanksTest, RanksMayBeMerged) {
  ConvertFor(2);
  BuildTwoRanks();
  BuildTo(engine(), checkpoint(), {.merge_ranks = true});
  EXPECT_FALSE(FileExists(engine() / "rank1.engine")) << "of the earlier build";
  BuildTo(dir_ / "single", hf());
  for (const char* name : {"rank0.engine", "config.json"})
    EXPECT_EQ(*ReadFile(engine() / name), *ReadFile(dir_ / "single" / name)) << name;
}

TestModel TwoLayers() {
  TestModel model = TinyLlama();
  model.is_wavy = true;
  model.config["num_hidden_layers"] = 2;
  const std::string first = "model.layers.0.";
  for (size_t i = 0, count = model.tensors.size(); i < count; ++i) {
    artifact::TensorSpec tensor = model.tensors[i];
    if (!tensor.name.starts_with(first)) continue;
    tensor.name = "model.layers.1." + tensor.name.substr(first.size());
    model.tensors.push_back(std::move(tensor));
  }
  return model;
}

// Medusa's heads, whole, whatever parts of them ranks of the checkpoint have.
TEST_F(EngineRanksTest, HeadsOfStagesForGpusLieOnTheLastOne) {
  TwoLayers().Write(hf());
  TestModel heads = {{{"medusa_num_heads", 2}}, {}};
  for (const std::string head : {"0", "1"}) {
    heads.tensors.push_back({head + ".0.linear.weight", DType::kF32, {16, 16}});
    heads.tensors.push_back({head + ".0.linear.bias", DType::kF32, {16}});
    heads.tensors.push_back({head + ".1.weight", DType::kF32, {10, 16}});
  }
  heads.Write(dir_ / "heads");
  fs::rename(dir_ / "heads/model.safetensors", dir_ / "heads/medusa_lm_head.safetensors");
  const Status converted = Convert({.model_dir = hf(),
                                    .output_dir = checkpoint(),
                                    .dtype = "float32",
                                    .tp_size = 2,
                                    .pp_size = 2,
                                    .medusa = {.dir = dir_ / "heads"}});
  ASSERT_TRUE(converted.ok()) << converted.ToString();
  BuildTo(engine(), checkpoint(), {.target = DeviceKind::kCuda});
  BuildTo(dir_ / "plain", hf(), {.tp_size = 2, .pp_size = 2, .target = DeviceKind::kCuda});
  constexpr uint64_t kHeadBytes = uint64_t{2} * (16 * 16 + 16 + 10 * 16) * 2;  // bfloat16
  for (int rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(rank);
    const OpenOptions of_rank = {.ranks = {.tp_size = 2, .pp_size = 2}, .rank = rank};
    const auto with = Describe(engine(), of_rank);
    const auto without = Describe(dir_ / "plain", of_rank);
    ASSERT_TRUE(with.ok()) << with.status().ToString();
    ASSERT_TRUE(without.ok()) << without.status().ToString();
    EXPECT_EQ(with->config.num_medusa_heads, 2) << "all judge their trees";
    model::DecoderWeights weights;
    const auto slots = model::WeightSlots(with->config, weights);
    const auto num_slots = std::ranges::count_if(slots, [](const model::WeightSlot& slot) {
      return slot.name.starts_with(model::kMedusaHeads);
    });
    EXPECT_EQ(num_slots, rank < 2 ? 0 : 6);
    if (rank < 2) {
      EXPECT_EQ(with->weight_bytes, without->weight_bytes);
    } else {
      EXPECT_GE(with->weight_bytes, without->weight_bytes + kHeadBytes);
    }
  }
}

TEST_F(EngineRanksTest, RanksAndStagesForGpusHaveFilesOfTheirOwn) {
  TwoLayers().Write(hf());
  ConvertFor(2);
  BuildTo(engine(), checkpoint(), {.target = DeviceKind::kCuda});
  EXPECT_TRUE(FileExists(engine() / "rank1.engine"));
  BuildTo(dir_ / "staged", hf(), {.tp_size = 2, .pp_size = 2, .target = DeviceKind::kCuda});
  const auto config = nlohmann::json::parse(*ReadFile(dir_ / "staged/config.json"));
  EXPECT_EQ(config["pretrained_config"]["mapping"]["pp_size"], 2);
  EXPECT_TRUE(FileExists(dir_ / "staged/rank3.engine"));
  const Status converted = Convert({.model_dir = hf(),
                                    .output_dir = dir_ / "stages",
                                    .dtype = "float32",
                                    .tp_size = 2,
                                    .pp_size = 2});
  ASSERT_TRUE(converted.ok()) << converted.ToString();
  BuildTo(dir_ / "merged", dir_ / "stages", {.merge_ranks = true, .target = DeviceKind::kCuda});
  BuildTo(dir_ / "single", hf(), {.target = DeviceKind::kCuda});
  EXPECT_EQ(*ReadFile(dir_ / "merged/config.json"), *ReadFile(dir_ / "single/config.json"));
  EXPECT_FALSE(FileExists(dir_ / "merged/rank1.engine"));
}

TEST_F(EngineRanksTest, WhatDoesNotDivideIsRefusedBeforeAnythingIsWritten) {
  const Status built =
      Build({.checkpoint_dir = hf(), .output_dir = engine(), .tp_size = 3, .dry_run = false});
  EXPECT_EQ(built.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(built.message(), HasSubstr("tp_size: got 3, num_attention_heads 2"));
  EXPECT_FALSE(FileExists(engine()));
}

TEST_F(EngineRanksTest, OtherRanksThanTheEnginesAreRefusedWithBothNumbers) {
  BuildTwoRanks();
  EXPECT_EQ(OpenRank(0, {}).code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(OpenRank(0, {}).message(), HasSubstr("tensor_parallel_size: got 1"));
  EXPECT_THAT(OpenRank(0, {.tp_size = 4}).message(),
              HasSubstr("tensor_parallel_size: got 4, " + engine().string() +
                        " is an engine for 2; leave it out"));
  EXPECT_THAT(
      OpenRank(0, {.tp_size = 2, .pp_size = 2}).message(),
      HasSubstr("pipeline_parallel_size: got 2, " + engine().string() + " is an engine for 1"));
  EXPECT_EQ(*RanksOf(engine(), {}), kTwo);
  EXPECT_EQ(*RanksOf(engine(), {.tp_size = 2}), kTwo);
  EXPECT_EQ(*RanksOf(hf(), {.pp_size = 3}), (RankMapping{.pp_size = 3}));
  EXPECT_EQ(RanksOf(engine(), {.tp_size = 1}).status(), OpenRank(0, {}));
}

TEST_F(EngineRanksTest, FilesThatDoNotBelongTogetherAreRefused) {
  BuildTwoRanks();
  const std::string config = *ReadFile(engine() / "config.json");
  const std::string zero = *ReadFile(engine() / "rank0.engine");
  const std::string one = *ReadFile(engine() / "rank1.engine");

  ASSERT_TRUE(WriteFile(engine() / "rank1.engine", zero).ok());
  EXPECT_EQ(OpenRank(1).code(), StatusCode::kDataLoss);
  EXPECT_THAT(OpenRank(1).message(),
              HasSubstr("rank1.engine: is not the file that config.json was written with"));
  fs::remove(engine() / "rank1.engine");
  EXPECT_EQ(OpenRank(1).code(), StatusCode::kNotFound);
  EXPECT_THAT(OpenRank(1).message(),
              HasSubstr("rank1.engine is missing, config.json's mapping has 2 ranks (tp_size 2 * "
                        "pp_size 1)"));
  EXPECT_EQ(Describe(engine()).status(), OpenRank(1));
  ASSERT_TRUE(WriteFile(engine() / "rank1.engine", one).ok());

  const auto with = [&](const char* pointer, const nlohmann::json& value) {
    auto changed = nlohmann::json::parse(config);
    changed[nlohmann::json::json_pointer(pointer)] = value;
    EXPECT_TRUE(WriteFile(engine() / "config.json", changed.dump()).ok());
    return std::string(OpenRank(0).message());
  };
  const char* const kNeeds = "2 checksums of 16 hexadecimal digits are needed";
  EXPECT_THAT(with("/rank_checksums", nullptr), HasSubstr("rank_checksums: got none, "));
  for (const auto& wrong : {nlohmann::json("x"), nlohmann::json({"0123456789abcdef"}),
                            nlohmann::json({"0123456789abcdef", "0123456789abcdeg"}),
                            nlohmann::json({"0123456789abcdef", 7})})
    EXPECT_THAT(with("/rank_checksums", wrong), HasSubstr(kNeeds));
  EXPECT_THAT(with("/pretrained_config/mapping/world_size", 4), HasSubstr("world_size: got 4"));
  EXPECT_THAT(with("/pretrained_config/embedding_sharding_dim", 1),
              HasSubstr("an engine of several ranks has use_parallel_embedding"));
  // A mapping that the files are not of.
  auto changed = nlohmann::json::parse(config);
  changed["pretrained_config"]["mapping"] = {{"tp_size", 1}, {"pp_size", 1}};
  changed.erase("rank_checksums");
  ASSERT_TRUE(WriteFile(engine() / "config.json", changed.dump()).ok());
  EXPECT_THAT(OpenRank(0, {}).message(), HasSubstr("expected "));
}

TEST_F(EngineRanksTest, RanksOfSeveralHostsCompareConfigurationsAlone) {
  BuildTwoRanks();
  const auto whole = RanksFingerprint(engine());
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  fs::remove(engine() / "rank0.engine");
  EXPECT_EQ(*RanksFingerprint(engine()), *whole);
  ASSERT_TRUE(WriteFile(engine() / "config.json", *ReadFile(engine() / "config.json") + "\n").ok());
  EXPECT_NE(*RanksFingerprint(engine()), *whole);
  const auto of_model = RanksFingerprint(hf());
  ASSERT_TRUE(WriteFile(hf() / "model.safetensors", "").ok());
  EXPECT_NE(*RanksFingerprint(hf()), *of_model);
}

}  // namespace
}  // namespace inflight::builder
