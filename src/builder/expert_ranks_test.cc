// SPDX-License-Identifier: Apache-2.0
// Ranks that hold different experts: what each has of a model, the way through checkpoints and
// engines and back, and what is refused. What is computed is tests/golden/ranks_golden_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "artifact/tensor_set.h"
#include "builder/builder.h"
#include "builder/test_models.h"
#include "model/weight_slots.h"

namespace inflight::builder {
namespace {

using artifact::RankMapping;
using testing::HasSubstr;

namespace fs = std::filesystem;

constexpr int kWidth = 64;   // of the residual stream
constexpr int kInner = 128;  // of an expert

class ExpertRanksTest : public testing::Test {
 protected:
  ExpertRanksTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ =
        fs::path(testing::TempDir()) / ("expert_ranks_" + std::to_string(getpid()) + info->name());
    fs::remove_all(dir_);
    model_.is_wavy = true;
    model_.Write(hf());
  }
  ~ExpertRanksTest() override { fs::remove_all(dir_); }

  fs::path hf() const { return dir_ / "hf"; }
  fs::path checkpoint() const { return dir_ / "checkpoint"; }
  fs::path engine() const { return dir_ / "engine"; }

  Status ConvertTo(ConvertOptions options) {
    options.model_dir = hf();
    options.output_dir = checkpoint();
    if (options.dtype == "auto") options.dtype = "float32";
    return Convert(options);
  }
  Status BuildTo(const fs::path& to, const fs::path& from, BuildOptions options) {
    options.checkpoint_dir = from;
    options.output_dir = to;
    return Build(options);
  }
  nlohmann::json MappingIn(const fs::path& config) {
    const auto json = nlohmann::json::parse(*ReadFile(config / "config.json"));
    return json.contains("mapping") ? json["mapping"] : json["pretrained_config"]["mapping"];
  }
  // The elements of a rank's tensor of the feed-forward.
  std::vector<float> TensorOf(int rank, const std::string& name, const Shape& shape) {
    const auto set = artifact::TensorSet::OpenFile(checkpoint() / artifact::RankFileName(rank));
    EXPECT_TRUE(set.ok()) << set.status().ToString();
    const artifact::StoredTensor* tensor = set->Find("transformer.layers.0.mlp." + name);
    if (tensor == nullptr) {
      ADD_FAILURE() << name << " is missing";
      return {};
    }
    EXPECT_EQ(tensor->shape, shape) << name;
    std::vector<float> values(tensor->data.size() / sizeof(float));
    std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
    return values;
  }

  TestModel model_ = MixtralOf(/*num_heads=*/4, /*num_experts=*/4, kInner);
  fs::path dir_;
  std::unique_ptr<Device> device_ = Device::Cpu(2);
};

// Ranks are numbered as by NVIDIA/TensorRT-LLM/tensorrt_llm/mapping.py: of four ranks with
// moe_ep_size 2 ranks 0 and 2 have experts 0 and 1, ranks 1 and 3 the others; 0 and 1 have the
// first half of each.
TEST_F(ExpertRanksTest, CheckpointsHoldTheExpertsThatUpstreamsRanksHave) {
  ASSERT_EQ(ConvertTo({.tp_size = 4, .moe_ep_size = 2}), Status::Ok());
  EXPECT_EQ(MappingIn(checkpoint()),
            nlohmann::json::parse(R"({"world_size": 4, "tp_size": 4, "pp_size": 1, "cp_size": 1,
                                      "gpus_per_node": 8, "moe_tp_size": 2, "moe_ep_size": 2})"));
  constexpr int kHalf = kInner / 2;
  for (int rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(rank);
    const auto fc = TensorOf(rank, "fc.weight", {2, 2 * kHalf, kWidth});
    const auto proj = TensorOf(rank, "proj.weight", {2, kWidth, kHalf});
    EXPECT_EQ(TensorOf(rank, "router.weight", {4, kWidth}).size(), size_t{4} * kWidth) << "whole";
    for (int e = 0; e < 2; ++e) {
      const int expert = rank % 2 * 2 + e;
      const std::vector<float> up = model_.Values(ExpertName(expert, "w3"));
      const std::vector<float> gate = model_.Values(ExpertName(expert, "w1"));
      const std::vector<float> down = model_.Values(ExpertName(expert, "w2"));
      constexpr ptrdiff_t kPart = ptrdiff_t{kHalf} * kWidth;
      const ptrdiff_t skipped = rank / 2 * kPart;
      const auto at = fc.begin() + e * 2 * kPart;
      EXPECT_TRUE(std::equal(at, at + kPart, up.begin() + skipped));
      EXPECT_TRUE(std::equal(at + kPart, at + 2 * kPart, gate.begin() + skipped));
      for (int row = 0; row < kWidth; ++row) {
        const auto of_row = proj.begin() + (ptrdiff_t{e} * kWidth + row) * kHalf;
        EXPECT_TRUE(std::equal(of_row, of_row + kHalf,
                               down.begin() + ptrdiff_t{row} * kInner + rank / 2 * kHalf));
      }
    }
  }
}

TEST_F(ExpertRanksTest, CheckpointsAndEnginesMergeBackToTheSameWeights) {
  using enum model::QuantAlgo;
  struct Case {
    model::QuantAlgo algo;
    DeviceKind target = DeviceKind::kCpu;
  };
  for (const Case& c : {Case{kNone}, Case{kW8A16}, Case{kW4A16}, Case{kW4A16Gptq}, Case{kW8A16Gptq},
                        Case{kFp8PerChannelPerToken, DeviceKind::kCuda}}) {
    const auto group_size = HasGroups(c.algo) ? std::optional(16) : std::nullopt;
    BuildOptions build = {.quant_algo = c.algo, .group_size = group_size, .target = c.target};
    build.dtype = c.target == DeviceKind::kCuda ? DType::kBF16 : DType::kF32;
    ASSERT_EQ(BuildTo(dir_ / "one", hf(), build), Status::Ok());
    for (const RankMapping& ranks : {RankMapping{2, 1, 2}, {4, 1, 4}, {4, 1, 2}}) {
      SCOPED_TRACE(testing::Message() << model::QuantAlgoName(c.algo) << " " << ranks.ToString());
      ASSERT_EQ(ConvertTo({.dtype = c.target == DeviceKind::kCuda ? "bfloat16" : "float32",
                           .quant_algo = c.algo,
                           .group_size = group_size,
                           .tp_size = ranks.tp_size,
                           .moe_ep_size = ranks.moe_ep_size}),
                Status::Ok());
      BuildOptions merged = build;
      merged.merge_ranks = true;
      ASSERT_EQ(BuildTo(engine(), checkpoint(), merged), Status::Ok());
      EXPECT_EQ(*ReadFile(engine() / "rank0.engine"), *ReadFile(dir_ / "one" / "rank0.engine"));
      // With a file for each rank, of the checkpoint and of the model itself.
      ASSERT_EQ(BuildTo(engine(), checkpoint(), build), Status::Ok());
      BuildOptions direct = build;
      direct.tp_size = ranks.tp_size;
      direct.moe_ep_size = ranks.moe_ep_size;
      ASSERT_EQ(BuildTo(dir_ / "direct", hf(), direct), Status::Ok());
      EXPECT_EQ(*RanksOf(engine(), {}), ranks);
      for (int rank = 0; rank < ranks.num_ranks(); ++rank) {
        const std::string name = artifact::EngineFileName(rank);
        const bool are_equal = *ReadFile(engine() / name) == *ReadFile(dir_ / "direct" / name);
        EXPECT_TRUE(are_equal || c.algo != kNone) << rank;  // else scaled for its own columns
        if (c.target == DeviceKind::kCuda) continue;
        const auto opened = Open(engine(), *device_, {.ranks = ranks, .rank = rank});
        EXPECT_TRUE(opened.ok()) << opened.status().ToString();
      }
    }
  }
}

TEST_F(ExpertRanksTest, ARankTakesTheMemoryOfItsExperts) {
  const auto whole = Describe(hf(), {.dtype = DType::kF32});
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  const auto bytes_of_experts = [](const model::ModelConfig& config) {
    model::DecoderWeights unused;
    uint64_t bytes = 0;
    for (const model::WeightSlot& slot : model::WeightSlots(config, unused))
      if (slot.num_experts > 0) bytes += model::StoredBytes(config, slot, DeviceKind::kCpu);
    return bytes;
  };
  for (const RankMapping& ranks : {RankMapping{2, 1, 2}, {4, 1, 4}, {4, 1, 2}})
    for (int rank = 0; rank < ranks.num_ranks(); ++rank) {
      const auto part = Describe(hf(), {.dtype = DType::kF32, .ranks = ranks, .rank = rank});
      ASSERT_TRUE(part.ok()) << part.status().ToString();
      EXPECT_EQ(bytes_of_experts(part->config) * static_cast<uint64_t>(ranks.tp_size),
                bytes_of_experts(whole->config));
      EXPECT_EQ(part->config.num_experts, 4) << "that the router chooses among";
      EXPECT_EQ(ExpertsOfRank(part->config).num_routed, 4 / ranks.moe_ep_size);
    }
}

// Of three shared experts two ranks have one and two.
TEST(ExpertsOfRankTest, SharedOnesAreDealtToo) {
  int first = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const ops::HeldExperts held = model::ExpertsOfRank(8, 3, 4, rank);
    EXPECT_EQ(held.first, first);
    EXPECT_EQ(held.num_routed, 2);
    EXPECT_EQ(held.num_shared, rank == 0 ? 0 : 1);
    first += 2;
  }
  EXPECT_EQ(model::ExpertsOfRank(4, 3, 2, 0).num_shared, 1);
  EXPECT_EQ(model::ExpertsOfRank(4, 3, 2, 1).num_shared, 2);
}

TEST_F(ExpertRanksTest, SizesThatDoNotFitAreRefusedByName) {
  const auto error = [&](ConvertOptions options) { return ConvertTo(options).message(); };
  EXPECT_THAT(
      error({.tp_size = 4, .moe_ep_size = 3}),
      HasSubstr("moe_ep_size: got 3, it has to divide the tensor-parallel ranks, which are 4"));
  EXPECT_THAT(
      error({.moe_ep_size = 2}),
      HasSubstr("moe_ep_size: got 2, it has to divide the tensor-parallel ranks, which are 1"));
  EXPECT_THAT(
      error({.tp_size = 4, .moe_tp_size = 0}),
      HasSubstr("moe_tp_size: got 0, it has to divide the tensor-parallel ranks, which are 4"));
  EXPECT_THAT(
      error({.tp_size = 4, .moe_tp_size = 4, .moe_ep_size = 2}),
      HasSubstr(
          "moe_ep_size: got 2, beside moe_tp_size 4 of 4 tensor-parallel ranks it has to be 1"));
  EXPECT_THAT(error({.tp_size = 4, .moe_tp_size = 4}),
              HasSubstr("tp_size: got 4, which cuts moe_intermediate_size 128 into parts of 32; "
                        "only multiples of 64 are supported; give a larger moe_ep_size"));
  EXPECT_EQ(ConvertTo({.tp_size = 4, .moe_tp_size = 1}), Status::Ok());
  EXPECT_EQ(MappingIn(checkpoint())["moe_ep_size"], 4);
  EXPECT_EQ(ConvertTo({.tp_size = 2, .moe_tp_size = -1, .moe_ep_size = -1}), Status::Ok());
  EXPECT_FALSE(MappingIn(checkpoint()).contains("moe_ep_size")) << "all ranks have parts of all";

  MixtralOf(/*num_heads=*/4, /*num_experts=*/6, kInner).Write(hf());
  EXPECT_THAT(error({.tp_size = 4, .moe_ep_size = 4}),
              HasSubstr("moe_ep_size: got 4, the model has 6 experts, which is no multiple of it"));
  TinyLlama().Write(hf());
  EXPECT_THAT(error({.tp_size = 2, .moe_ep_size = 2}),
              HasSubstr("moe_ep_size: got 2, LlamaForCausalLM has no experts; leave it out"));
}

TEST_F(ExpertRanksTest, AnEngineHasTheExpertsOfItsBuild) {
  ASSERT_EQ(BuildTo(engine(), hf(), {.tp_size = 2, .moe_ep_size = 2}), Status::Ok());
  constexpr RankMapping kExperts = {.tp_size = 2, .moe_ep_size = 2};
  EXPECT_EQ(*RanksOf(engine(), {}), kExperts);
  EXPECT_EQ(*RanksOf(engine(), {.moe_tp_size = 1}), kExperts);
  EXPECT_EQ(*RanksOf(engine(), {.tp_size = 2, .moe_tp_size = -1, .moe_ep_size = 2}), kExperts);
  EXPECT_EQ(*RanksOf(hf(), {.tp_size = 2, .moe_tp_size = 1}), kExperts);
  const Status other = RanksOf(engine(), {.moe_ep_size = 1}).status();
  EXPECT_EQ(other.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.message(),
              HasSubstr("moe_ep_size: got 1, " + engine().string() + " is an engine for 2"));
  EXPECT_THAT(Open(engine(), *device_, {.ranks = {.tp_size = 2}, .rank = 1}).status().message(),
              HasSubstr("moe_ep_size: got 1"));
  for (const int rank : {0, 1}) {
    const auto opened = Open(engine(), *device_, {.ranks = kExperts, .rank = rank});
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    EXPECT_EQ(ExpertsOfRank((*opened)->config).first, 2 * rank);
  }
  ASSERT_EQ(ConvertTo({.tp_size = 2, .moe_ep_size = 2}), Status::Ok());
  EXPECT_THAT(BuildTo(engine(), checkpoint(), {.moe_ep_size = 1}).message(),
              HasSubstr("moe_ep_size: got 1, " + checkpoint().string()));
  EXPECT_EQ(BuildTo(engine(), checkpoint(), {.moe_tp_size = 1}), Status::Ok());
}

TEST_F(ExpertRanksTest, MappingsOfUpstreamAreRead) {
  const auto read = [](nlohmann::json mapping) {
    return artifact::ReadMapping({{"mapping", std::move(mapping)}}, "config.json");
  };
  // to_dict of NVIDIA/TensorRT-LLM/tensorrt_llm/mapping.py, and -1 as its constructor takes it.
  const nlohmann::json upstream = {
      {"world_size", 4},  {"rank", 0},         {"gpus_per_node", 8}, {"cp_size", 1},
      {"tp_size", 4},     {"pp_size", 1},      {"moe_tp_size", 2},   {"moe_cluster_size", 1},
      {"moe_ep_size", 2}, {"attn_tp_size", 4}, {"attn_cp_size", 1},  {"auto_parallel", false}};
  EXPECT_EQ(*read(upstream), (RankMapping{4, 1, 2}));
  EXPECT_EQ(*read({{"tp_size", 4}, {"moe_tp_size", 4}, {"moe_ep_size", 1}}), (RankMapping{4, 1}));
  EXPECT_EQ(*read({{"tp_size", 4}, {"moe_tp_size", -1}, {"moe_ep_size", 4}}),
            (RankMapping{4, 1, 4}));
  EXPECT_THAT(read({{"tp_size", 4}, {"moe_tp_size", 2}, {"moe_ep_size", 4}}).status().message(),
              HasSubstr("config.json: mapping: moe_ep_size: got 4, beside moe_tp_size 2 of 4"));
  // Of 0.10, where one number says it.
  const nlohmann::json former = {{"mapping", {{"tp_size", 4}}}, {"moe", {{"tp_mode", 1}}}};
  EXPECT_EQ(*artifact::ReadMapping(former, "config.json"), (RankMapping{4, 1, 4}));
  EXPECT_THAT(read({{"tp_size", 4}, {"moe_cluster_size", 2}}).status().message(),
              HasSubstr("config.json: mapping: moe_cluster_size: got 2, only 1 is supported"));
}

}  // namespace
}  // namespace inflight::builder
