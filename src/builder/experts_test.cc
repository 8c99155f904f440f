// SPDX-License-Identifier: Apache-2.0
// Models with experts: what their checkpoints hold, and files that are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "artifact/checkpoint.h"
#include "artifact/json_file.h"
#include "artifact/tensor_set.h"
#include "builder/builder.h"
#include "builder/engine_memory.h"
#include "builder/hf_config.h"
#include "builder/test_models.h"
#include "builder/weight_source.h"

namespace inflight::builder {
namespace {

using testing::HasSubstr;

constexpr int kHidden = 64;
constexpr int kExperts = 3;

// With three experts.
TestModel TinyMixtral(int inner = 64) { return MixtralOf(/*num_heads=*/2, kExperts, inner); }

class ExpertFilesTest : public testing::Test {
 protected:
  ExpertFilesTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::path(testing::TempDir()) /
           ("experts_" + std::to_string(getpid()) + info->name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~ExpertFilesTest() override { std::filesystem::remove_all(dir_); }

  std::filesystem::path hf() const { return dir_ / "hf"; }
  std::filesystem::path checkpoint() const { return dir_ / "checkpoint"; }
  // The elements as the float32 that their tensor holds.
  std::vector<float> CheckpointTensor(const std::string& name, const Shape& shape, int rank = 0) {
    const auto set = artifact::TensorSet::OpenFile(
        checkpoint() / ("rank" + std::to_string(rank) + ".safetensors"));
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

  std::filesystem::path dir_;
  std::unique_ptr<Device> device_ = Device::Cpu(2);
};

// The shapes and the order of NVIDIA/TensorRT-LLM/tensorrt_llm/models/llama/convert.py: experts
// first, w3 above w1; the router in float32.
TEST_F(ExpertFilesTest, CheckpointsStackExperts) {
  const TestModel model = TinyMixtral();
  model.Write(hf());
  ASSERT_EQ(Convert({.model_dir = hf(), .output_dir = checkpoint(), .dtype = "float32"}),
            Status::Ok());
  const auto fc = CheckpointTensor("fc.weight", {kExperts, 128, kHidden});
  const auto proj = CheckpointTensor("proj.weight", {kExperts, kHidden, 64});
  constexpr ptrdiff_t kMatrix = ptrdiff_t{64} * kHidden;
  for (int e = 0; e < kExperts; ++e) {
    const auto at = fc.begin() + 2 * e * kMatrix;
    EXPECT_EQ(std::vector<float>(at, at + kMatrix), model.Values(ExpertName(e, "w3")));
    EXPECT_EQ(std::vector<float>(at + kMatrix, at + 2 * kMatrix),
              model.Values(ExpertName(e, "w1")));
    const auto down = proj.begin() + e * kMatrix;
    EXPECT_EQ(std::vector<float>(down, down + kMatrix), model.Values(ExpertName(e, "w2")));
  }
  ASSERT_EQ(Convert({.model_dir = hf(), .output_dir = checkpoint(), .dtype = "bfloat16"}),
            Status::Ok());
  EXPECT_EQ(CheckpointTensor("router.weight", {kExperts, kHidden}),
            model.Values("model.layers.0.block_sparse_moe.gate.weight"));
}

// NVIDIA/TensorRT-LLM/tensorrt_llm/models/llama/config.py: "swiglu" says that experts are gated.
TEST_F(ExpertFilesTest, ReadsUpstreamsNameOfTheActivationOfExperts) {
  TinyMixtral().Write(hf());
  ASSERT_EQ(Convert({.model_dir = hf(), .output_dir = checkpoint(), .dtype = "float32"}),
            Status::Ok());
  const std::filesystem::path path = checkpoint() / "config.json";
  auto config = artifact::ReadJsonFile(path);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ((*config)["hidden_act"], "silu");
  (*config)["hidden_act"] = "swiglu";
  ASSERT_EQ(artifact::WriteConfig(checkpoint(), *config), Status::Ok());
  const auto source = OpenWeightSource(checkpoint(), {});
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ((*source)->config.activation, ops::ActivationKind::kSilu);
  (*config)["hidden_act"] = "geglu";
  ASSERT_EQ(artifact::WriteConfig(checkpoint(), *config), Status::Ok());
  EXPECT_THAT(OpenWeightSource(checkpoint(), {}).status().message(),
              HasSubstr("hidden_act: got \"geglu\""));
}

// Qwen/Qwen1.5-MoE-A2.7B.
TEST_F(ExpertFilesTest, ReadsQwen2Moe) {
  nlohmann::json config = {{"architectures", {"Qwen2MoeForCausalLM"}},
                           {"bos_token_id", 151643},
                           {"decoder_sparse_step", 1},
                           {"eos_token_id", 151643},
                           {"hidden_act", "silu"},
                           {"hidden_size", 2048},
                           {"intermediate_size", 5632},
                           {"max_position_embeddings", 8192},
                           {"max_window_layers", 21},
                           {"model_type", "qwen2_moe"},
                           {"moe_intermediate_size", 1408},
                           {"norm_topk_prob", false},
                           {"num_attention_heads", 16},
                           {"num_experts", 60},
                           {"num_experts_per_tok", 4},
                           {"num_hidden_layers", 24},
                           {"num_key_value_heads", 16},
                           {"rms_norm_eps", 1e-06},
                           {"rope_theta", 1000000.0},
                           {"shared_expert_intermediate_size", 5632},
                           {"sliding_window", 32768},
                           {"tie_word_embeddings", false},
                           {"torch_dtype", "bfloat16"},
                           {"use_sliding_window", false},
                           {"vocab_size", 151936}};
  const auto hf = ParseHfConfig(config, "config.json");
  ASSERT_EQ(hf.status(), Status::Ok());
  const model::ModelConfig& m = hf->config;
  EXPECT_EQ(m.num_experts, 60);
  EXPECT_EQ(m.num_shared_experts, 4);
  EXPECT_EQ(model::ExpertsOfRank(m).size(), 64);
  EXPECT_EQ(model::ExpertsOfToken(m), 8);
  EXPECT_EQ(model::RouterRows(m), 61);
  constexpr int64_t kOfExpert = int64_t{3} * 1408 * 2048;
  constexpr int64_t kOfLayer = int64_t{4} * 2048 * 2048 + 3 * 2048 + 2 * 2048 + 61 * 2048;
  constexpr int64_t kOutside = int64_t{2} * 151936 * 2048 + 2048;
  EXPECT_EQ(CountParameters(m).total, 24 * (kOfLayer + 64 * kOfExpert) + kOutside);
  EXPECT_EQ(CountParameters(m).active, 24 * (kOfLayer + 8 * kOfExpert) + kOutside);
  EXPECT_TRUE(m.qkv_bias);
  EXPECT_FALSE(m.has_renormalized_experts);
  EXPECT_EQ(m.sliding_window, 0);
  config["shared_expert_intermediate_size"] = 5000;
  EXPECT_THAT(ParseHfConfig(config, "config.json").status().message(),
              HasSubstr("shared_expert_intermediate_size: got 5000, only multiples of the other "
                        "experts' width, 1408, are supported"));
}

// openai/gpt-oss-20b.
TEST_F(ExpertFilesTest, ReadsGptOss) {
  nlohmann::json config = {{"architectures", {"GptOssForCausalLM"}},
                           {"attention_bias", true},
                           {"attention_dropout", 0.0},
                           {"eos_token_id", 200002},
                           {"experts_per_token", 4},
                           {"head_dim", 64},
                           {"hidden_act", "silu"},
                           {"hidden_size", 2880},
                           {"initial_context_length", 4096},
                           {"intermediate_size", 2880},
                           {"layer_types", {"sliding_attention", "full_attention"}},
                           {"max_position_embeddings", 131072},
                           {"model_type", "gpt_oss"},
                           {"num_attention_heads", 64},
                           {"num_experts_per_tok", 4},
                           {"num_hidden_layers", 2},
                           {"num_key_value_heads", 8},
                           {"num_local_experts", 32},
                           {"pad_token_id", 199999},
                           {"quantization_config",
                            {{"modules_to_not_convert",
                              {"model.layers.*.self_attn", "model.layers.*.mlp.router",
                               "model.embed_tokens", "lm_head"}},
                             {"quant_method", "mxfp4"}}},
                           {"rms_norm_eps", 1e-05},
                           {"rope_scaling",
                            {{"beta_fast", 32.0},
                             {"beta_slow", 1.0},
                             {"factor", 32.0},
                             {"original_max_position_embeddings", 4096},
                             {"rope_type", "yarn"},
                             {"truncate", false}}},
                           {"rope_theta", 150000},
                           {"sliding_window", 128},
                           {"swiglu_limit", 7.0},
                           {"tie_word_embeddings", false},
                           {"vocab_size", 201088}};
  const auto hf = ParseHfConfig(config, "config.json");
  ASSERT_EQ(hf.status(), Status::Ok());
  EXPECT_EQ(hf->quantization->Describe(), "MXFP4, blocks of 32, of experts");
  const model::ModelConfig& m = hf->config;
  EXPECT_TRUE(m.has_attention_sinks && m.has_expert_biases && m.has_renormalized_experts);
  EXPECT_TRUE(m.qkv_bias && m.dense_bias);
  EXPECT_FALSE(m.mlp_bias || m.rope_scaling.truncate);
  EXPECT_EQ(m.expert_intermediate_size, 2880);
  EXPECT_EQ(m.num_experts, 32);
  EXPECT_EQ(m.experts_per_token, 4);
  EXPECT_EQ(m.expert_limit, 7);
  EXPECT_EQ(model::WindowOf(m, 0), 128);
  EXPECT_EQ(model::WindowOf(m, 1), 0);
  config.erase("rope_scaling");  // as the class in transformers does
  EXPECT_EQ(ParseHfConfig(config, "config.json")->config.rope_scaling.factor, 32);
  config["swiglu_alpha"] = 2;
  EXPECT_THAT(ParseHfConfig(config, "config.json").status().message(),
              HasSubstr("swiglu_alpha: got 2, only 1.702 is supported"));
}

TEST_F(ExpertFilesTest, RanksHoldPartsOfEveryExpert) {
  const TestModel model = TinyMixtral(/*inner=*/128);
  model.Write(hf());
  ASSERT_EQ(
      Convert({.model_dir = hf(), .output_dir = checkpoint(), .dtype = "float32", .tp_size = 2}),
      Status::Ok());
  const auto fc = CheckpointTensor("fc.weight", {kExperts, 128, kHidden}, /*rank=*/1);
  CheckpointTensor("proj.weight", {kExperts, kHidden, 64}, 1);
  CheckpointTensor("router.weight", {kExperts, kHidden}, 1);
  constexpr ptrdiff_t kHalf = ptrdiff_t{64} * kHidden;
  const std::vector<float> w1 = model.Values(ExpertName(2, "w1"));
  const auto at = fc.begin() + 5 * kHalf;  // behind two experts' halves and the third's w3
  EXPECT_EQ(std::vector<float>(at, at + kHalf), std::vector<float>(w1.begin() + kHalf, w1.end()));
}

TEST_F(ExpertFilesTest, IntegerCheckpointsGiveTheWeightsOfTheModelItself) {
  TestModel model = TinyMixtral();
  model.is_wavy = true;
  model.Write(hf());
  for (const model::QuantAlgo algo : {model::QuantAlgo::kW8A16, model::QuantAlgo::kW4A16}) {
    ASSERT_EQ(Convert({.model_dir = hf(),
                       .output_dir = checkpoint(),
                       .dtype = "float32",
                       .quant_algo = algo}),
              Status::Ok());
    const auto stored = Open(checkpoint(), *device_, {});
    const auto made = Open(hf(), *device_, {.quant_algo = algo});
    ASSERT_TRUE(stored.ok()) << stored.status().ToString();
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    for (ops::Weight model::LayerWeights::*const part :
         {&model::LayerWeights::fc, &model::LayerWeights::proj}) {
      const ops::Weight& a = (*stored)->weights.layers[0].*part;
      const ops::Weight& b = (*made)->weights.layers[0].*part;
      EXPECT_EQ(a.out_features, b.out_features);
      EXPECT_EQ(std::memcmp(a.data, b.data,
                            ops::WeightBytes(a.dtype, a.layout, a.out_features, a.in_features)),
                0);
      EXPECT_EQ(
          std::memcmp(a.scales, b.scales, sizeof(float) * static_cast<size_t>(a.out_features)), 0);
    }
  }
}

TEST_F(ExpertFilesTest, MissingExpertsAreNamed) {
  TestModel model = TinyMixtral();
  model.Remove(ExpertName(1, "w3"));
  model.Write(hf());
  EXPECT_THAT(Open(hf(), *device_, {}).status().message(),
              HasSubstr("Required but not provided tensors:{\"" + ExpertName(1, "w3") + "\"}"));
}

TEST_F(ExpertFilesTest, ExpertsOfAnotherShapeAreNamed) {
  TestModel model = TinyMixtral();
  model.Tensor(ExpertName(2, "w2")).shape = {kHidden, 32};
  model.Write(hf());
  EXPECT_THAT(Open(hf(), *device_, {}).status().message(),
              HasSubstr(ExpertName(2, "w2") + ": expected shape [64, 64], found [64, 32]"));
}

TEST_F(ExpertFilesTest, NumbersThatMakeNoSenseAreRefusedByName) {
  const auto error = [](const char* field, nlohmann::json value) {
    nlohmann::json config = TinyMixtral().config;
    config[field] = std::move(value);
    return ParseHfConfig(config, "config.json").status().message();
  };
  EXPECT_THAT(error("num_local_experts", 0), HasSubstr("num_local_experts: got 0"));
  EXPECT_THAT(error("num_local_experts", 1025), HasSubstr("num_local_experts: got 1025"));
  EXPECT_THAT(error("num_experts_per_tok", 0), HasSubstr("num_experts_per_tok: got 0"));
  EXPECT_THAT(error("num_experts_per_tok", 4),
              HasSubstr("num_experts_per_tok: got 4, a number from 1 to 3 is needed"));
  EXPECT_THAT(error("intermediate_size", 96),
              HasSubstr("moe_intermediate_size: got 96, with experts only multiples of 64 are"));
  EXPECT_THAT(error("hidden_size", 96), HasSubstr("hidden_size: got 96, with experts"));
}

TEST_F(ExpertFilesTest, RanksThatCutExpertsTooNarrowAreRefused) {
  TinyMixtral().Write(hf());
  EXPECT_THAT(Convert({.model_dir = hf(), .output_dir = checkpoint(), .tp_size = 2}).message(),
              HasSubstr("tp_size: got 2, which cuts moe_intermediate_size 64 into parts of 32"));
}

}  // namespace
}  // namespace inflight::builder
