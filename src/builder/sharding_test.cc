// SPDX-License-Identifier: Apache-2.0
// The layout itself is checked against numpy in tests/tools/test_convert_ranks.py; here are the
// round trip, byte for byte, and what is refused.
#include "builder/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "builder/builder.h"
#include "builder/merge.h"
#include "builder/test_models.h"

namespace inflight::builder {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct LlamaShape {
  int num_layers = 3;
  int num_heads = 4;
  int num_kv_heads = 2;
  int vocab_size = 11;
  bool has_biases = false;
};

TestModel Llama(const LlamaShape& shape) {
  constexpr int kHeadDim = 8;
  constexpr int kHidden = 16;
  constexpr int kInner = 24;
  const int64_t query = shape.num_heads * kHeadDim;
  const int64_t kv = shape.num_kv_heads * kHeadDim;
  TestModel model = TinyLlama();
  model.config.update({{"num_hidden_layers", shape.num_layers},
                       {"num_attention_heads", shape.num_heads},
                       {"num_key_value_heads", shape.num_kv_heads},
                       {"head_dim", kHeadDim},
                       {"vocab_size", shape.vocab_size},
                       {"attention_bias", shape.has_biases},
                       {"mlp_bias", shape.has_biases}});
  model.tensors = {{"model.embed_tokens.weight", DType::kF32, {shape.vocab_size, kHidden}},
                   {"model.norm.weight", DType::kF32, {kHidden}},
                   {"lm_head.weight", DType::kF32, {shape.vocab_size, kHidden}}};
  for (int i = 0; i < shape.num_layers; ++i) {
    const auto add = [&](const std::string& name, Shape size) {
      model.tensors.push_back(
          {"model.layers." + std::to_string(i) + "." + name, DType::kF32, size});
    };
    const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
      add(name + ".weight", {out, in});
      if (shape.has_biases) add(name + ".bias", {out});
    };
    linear("self_attn.q_proj", query, kHidden);
    linear("self_attn.k_proj", kv, kHidden);
    linear("self_attn.v_proj", kv, kHidden);
    linear("self_attn.o_proj", kHidden, query);
    linear("mlp.gate_proj", kInner, kHidden);
    linear("mlp.up_proj", kInner, kHidden);
    linear("mlp.down_proj", kHidden, kInner);
    add("input_layernorm.weight", {kHidden});
    add("post_attention_layernorm.weight", {kHidden});
  }
  return model;
}

// hidden 32, four heads, vocabulary 11, tied; Conv1D storage.
TestModel Gpt2(int num_layers) {
  TestModel model{{{"architectures", {"GPT2LMHeadModel"}},
                   {"n_embd", 32},
                   {"n_head", 4},
                   {"n_layer", num_layers},
                   {"n_positions", 20},
                   {"vocab_size", 11}},
                  {{"transformer.wte.weight", DType::kF32, {11, 32}},
                   {"transformer.wpe.weight", DType::kF32, {20, 32}},
                   {"transformer.ln_f.weight", DType::kF32, {32}},
                   {"transformer.ln_f.bias", DType::kF32, {32}}}};
  for (int i = 0; i < num_layers; ++i) {
    const auto add = [&](const std::string& name, Shape weight, int64_t bias) {
      const std::string stem = "transformer.h." + std::to_string(i) + "." + name;
      model.tensors.push_back({stem + ".weight", DType::kF32, weight});
      model.tensors.push_back({stem + ".bias", DType::kF32, {bias}});
    };
    add("ln_1", {32}, 32);
    add("attn.c_attn", {32, 96}, 96);
    add("attn.c_proj", {32, 32}, 32);
    add("ln_2", {32}, 32);
    add("mlp.c_fc", {32, 128}, 128);
    add("mlp.c_proj", {128, 32}, 32);
  }
  return model;
}

class ShardingTest : public testing::Test {
 protected:
  ShardingTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::path(testing::TempDir()) /
           ("sharding_" + std::to_string(getpid()) + info->name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~ShardingTest() override { std::filesystem::remove_all(dir_); }

  std::filesystem::path hf() const { return dir_ / "hf"; }
  std::filesystem::path checkpoint() const { return dir_ / "checkpoint"; }

  Status ConvertTo(ConvertOptions options) {
    options.model_dir = hf();
    options.output_dir = checkpoint();
    options.dtype = "float32";
    return Convert(options);
  }

  // Changes bytes of a float32 tensor in a rank's file.
  void Poke(int rank, const std::string& name,
            const std::function<void(std::span<float>)>& change) {
    const auto path = checkpoint() / artifact::RankFileName(rank);
    std::string bytes = *ReadFile(path);
    const auto tensors = artifact::ParseSafetensors(std::as_bytes(std::span(bytes)), path.string());
    ASSERT_TRUE(tensors.ok());
    for (const artifact::StoredTensor& tensor : *tensors) {
      if (tensor.name != name) continue;
      std::vector<float> values(tensor.data.size() / sizeof(float));
      std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
      change(values);
      std::memcpy(bytes.data() + (reinterpret_cast<const char*>(tensor.data.data()) - bytes.data()),
                  values.data(), tensor.data.size());
      ASSERT_TRUE(WriteFile(path, bytes).ok());
      return;
    }
    FAIL() << name << " is not in " << path;
  }

  // Writes a rank's file again with one tensor as zeros of another dtype.
  void Retype(int rank, const std::string& name, DType dtype) {
    const auto path = checkpoint() / artifact::RankFileName(rank);
    const std::string bytes = *ReadFile(path);
    const auto tensors = artifact::ParseSafetensors(std::as_bytes(std::span(bytes)), path.string());
    std::vector<artifact::TensorSpec> specs;
    for (const artifact::StoredTensor& tensor : *tensors)
      specs.push_back({tensor.name, tensor.name == name ? dtype : tensor.dtype, tensor.shape});
    auto writer = artifact::SafetensorsWriter::Create(path, specs);
    for (const artifact::StoredTensor& tensor : *tensors) {
      const std::vector<std::byte> zeros(static_cast<size_t>(tensor.shape.num_elements()) *
                                         SizeOf(dtype));
      ASSERT_TRUE(writer->Append(tensor.name == name ? zeros : tensor.data).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
  }

  Status OpenStatus() { return Open(checkpoint(), *device_).status(); }

  std::filesystem::path dir_;
  std::unique_ptr<Device> device_ = Device::Cpu(1);
};

// Both directories have the same tensors with the same bytes, the copies among them agree.
void ExpectSameWeights(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto left = OpenWeightSource(a, {.dtype = DType::kF32, .quant_algo = {}});
  const auto right = OpenWeightSource(b, {.dtype = DType::kF32, .quant_algo = {}});
  ASSERT_TRUE(left.ok()) << left.status().ToString();
  ASSERT_TRUE(right.ok()) << right.status().ToString();
  CpuPool pool(1);
  ASSERT_TRUE(CheckCopies(**right, pool).ok());
  EXPECT_EQ((*left)->config.tied_embeddings, (*right)->config.tied_embeddings);
  ASSERT_EQ((*left)->recipes.size(), (*right)->recipes.size());
  const auto values = [](const WeightSource& source, const std::string& name) {
    const WeightRecipe& recipe = source.recipes.at(name);
    std::vector<float> out(static_cast<size_t>(recipe.shape.num_elements()), -1.0F);
    CopyRows(recipe, 0, recipe.shape[0], DType::kF32, out.data());
    return out;
  };
  for (const auto& [name, recipe] : (*left)->recipes) {
    ASSERT_TRUE((*right)->recipes.contains(name)) << name;
    EXPECT_EQ((*right)->recipes.at(name).shape, recipe.shape) << name;
    EXPECT_EQ(values(**left, name), values(**right, name)) << name;
  }
}

TEST_F(ShardingTest, ShardsMergeBackToTheSameWeights) {
  const std::pair<const char*, TestModel> models[] = {
      {"llama, 2 kv heads", Llama({})},
      {"llama, 1 kv head, biases", Llama({.num_kv_heads = 1, .has_biases = true})},
      {"llama, 4 kv heads", Llama({.num_layers = 2, .num_kv_heads = 4, .vocab_size = 7})},
      {"gpt2", Gpt2(3)}};
  for (const auto& [name, model] : models) {
    model.Write(hf());
    for (const int tp_size : {1, 2, 4})
      for (const int pp_size : {1, 2})
        for (const int embedding : {-1, 0, 1}) {  // whole, along the vocabulary, along hidden
          SCOPED_TRACE(testing::Message() << name << ", T " << tp_size << ", P " << pp_size
                                          << ", embedding " << embedding);
          const Status status = ConvertTo({.tp_size = tp_size,
                                           .pp_size = pp_size,
                                           .use_parallel_embedding = embedding >= 0,
                                           .embedding_sharding_dim = std::max(embedding, 0)});
          ASSERT_TRUE(status.ok()) << status.ToString();
          ASSERT_NO_FATAL_FAILURE(ExpectSameWeights(hf(), checkpoint()));
        }
  }
}

TEST_F(ShardingTest, EnginesOfMergedCheckpointsAreThoseOfOneRank) {
  TestModel model = Llama({});
  model.is_wavy = true;
  model.Write(hf());
  for (const auto algo :
       {model::QuantAlgo::kNone, model::QuantAlgo::kW8A16, model::QuantAlgo::kW4A16}) {
    ASSERT_TRUE(ConvertTo({.quant_algo = algo, .tp_size = 4, .pp_size = 2}).ok());
    BuildOptions options{
        .checkpoint_dir = checkpoint(), .output_dir = dir_ / "sharded", .merge_ranks = true};
    const Status sharded = Build(options);
    ASSERT_TRUE(sharded.ok()) << sharded.ToString();
    ASSERT_TRUE(ConvertTo({.quant_algo = algo}).ok());
    EXPECT_FALSE(FileExists(checkpoint() / "rank1.safetensors")) << "of the earlier checkpoint";
    options.output_dir = dir_ / "single";
    ASSERT_TRUE(Build(options).ok());
    for (const char* name : {"rank0.engine", "config.json"})
      EXPECT_EQ(*ReadFile(dir_ / "sharded" / name), *ReadFile(dir_ / "single" / name)) << name;
  }
}

// As converters do that quantise after splitting: rows of dense and proj have a scale per rank.
TEST_F(ShardingTest, Int8WeightsScaledPerRankAreRefused) {
  Llama({}).Write(hf());
  ASSERT_TRUE(ConvertTo({.quant_algo = model::QuantAlgo::kW8A16, .tp_size = 2}).ok());
  Poke(1, "transformer.layers.0.mlp.proj.per_channel_scale", [](auto v) { v[0] *= 2; });
  EXPECT_THAT(OpenStatus().message(), HasSubstr("inflight convert`"));
}

TEST_F(ShardingTest, Int4IsCutBetweenBytesAlone) {
  Llama({}).Write(hf());
  EXPECT_TRUE(ConvertTo({.quant_algo = model::QuantAlgo::kW4A16, .tp_size = 4}).ok());
  TestModel model = Llama({});
  model.config["intermediate_size"] = 12;
  for (artifact::TensorSpec& tensor : model.tensors) {
    if (tensor.name.ends_with("gate_proj.weight") || tensor.name.ends_with("up_proj.weight"))
      tensor.shape = {12, tensor.shape[1]};
    if (tensor.name.ends_with("down_proj.weight")) tensor.shape = {tensor.shape[0], 12};
  }
  model.Write(hf());
  EXPECT_THAT(ConvertTo({.quant_algo = model::QuantAlgo::kW4A16, .tp_size = 4}).message(),
              HasSubstr("tp_size: got 4, which cuts intermediate_size 12 into parts of 3 columns; "
                        "with int4 weights only even ones are supported"));
  EXPECT_TRUE(ConvertTo({.quant_algo = model::QuantAlgo::kW8A16, .tp_size = 4}).ok());
}

TEST_F(ShardingTest, BuildComparesTheSizesThatItIsGiven) {
  Llama({}).Write(hf());
  ASSERT_TRUE(ConvertTo({.tp_size = 2}).ok());
  BuildOptions options{.checkpoint_dir = checkpoint(), .output_dir = dir_ / "engine"};
  options.tp_size = 2;
  EXPECT_TRUE(Build(options).ok());
  options.pp_size = 2;
  EXPECT_THAT(Build(options).message(), HasSubstr("pipeline parallelism mismatch"));
  options.tp_size = 4;
  EXPECT_THAT(Build(options).message(), HasSubstr("tp_size: got 4"));
}

TEST_F(ShardingTest, CopiesOfAHeadMustAgree) {
  Llama({}).Write(hf());
  ASSERT_TRUE(ConvertTo({.tp_size = 4}).ok());  // ranks 2 and 3 hold kv head 1
  ASSERT_TRUE(OpenStatus().ok());
  // Rows of rank 3: 8 of queries, 8 of keys, 8 of values.
  Poke(3, "transformer.layers.1.attention.qkv.weight", [](auto v) { v[8 * 16 + 5] += 1; });
  const Status status = OpenStatus();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("rank3.safetensors: "
                                          "transformer.layers.1.attention.qkv.weight"));
  EXPECT_THAT(status.message(), HasSubstr("near row 40"));  // 32 of queries, 8 of kv head 0
  EXPECT_FALSE(Build({.checkpoint_dir = checkpoint(), .output_dir = dir_ / "engine"}).ok());
}

TEST_F(ShardingTest, ReplicatedTensorsMustAgreeAndRowParallelBiasesMayBeZero) {
  Llama({.has_biases = true}).Write(hf());
  ASSERT_TRUE(ConvertTo({.tp_size = 2}).ok());
  Poke(1, "transformer.layers.0.attention.dense.bias", [](auto v) { std::ranges::fill(v, 0.0F); });
  Poke(1, "transformer.layers.0.mlp.proj.bias", [](auto v) { std::ranges::fill(v, 0.0F); });
  EXPECT_TRUE(OpenStatus().ok());
  Poke(1, "transformer.layers.0.mlp.proj.bias", [](auto v) { v[3] = 9; });
  EXPECT_THAT(OpenStatus().message(), HasSubstr("transformer.layers.0.mlp.proj.bias"));
  ASSERT_TRUE(ConvertTo({.tp_size = 2}).ok());
  Poke(1, "transformer.ln_f.weight", [](auto v) { std::ranges::fill(v, 0.0F); });
  EXPECT_THAT(OpenStatus().message(), HasSubstr("rank1.safetensors: transformer.ln_f.weight"));
}

TEST_F(ShardingTest, RanksMustStoreATensorInOneDType) {
  Llama({}).Write(hf());
  ASSERT_TRUE(ConvertTo({.tp_size = 2}).ok());
  Retype(1, "transformer.ln_f.weight", DType::kF64);  // on both ranks
  EXPECT_THAT(OpenStatus().message(),
              HasSubstr("rank1.safetensors: transformer.ln_f.weight: dtype float64, "
                        "rank0.safetensors has float32"));
  // Split over the ranks, and the question which of them has scales.
  ASSERT_TRUE(ConvertTo({.quant_algo = model::QuantAlgo::kW8A16, .tp_size = 2}).ok());
  Retype(1, "transformer.layers.0.mlp.fc.weight", DType::kF32);
  const Status status = OpenStatus();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("mlp.fc.weight: dtype float32, rank0.safetensors has "
                                          "int8"));
}

TEST_F(ShardingTest, ATiedTableIsStoredOnceWhereTheRanksAllowIt) {
  Gpt2(2).Write(hf());
  const auto head_rows = [&](int rank) -> int64_t {
    const auto file = artifact::TensorSet::OpenFile(checkpoint() / artifact::RankFileName(rank));
    const artifact::StoredTensor* head = file->Find("lm_head.weight");
    return head == nullptr ? 0 : head->shape[0];
  };
  ASSERT_TRUE(ConvertTo({}).ok());
  EXPECT_EQ(head_rows(0), 0);
  ASSERT_TRUE(ConvertTo({.use_embedding_sharing = false}).ok());
  EXPECT_EQ(head_rows(0), 11);
  ASSERT_NO_FATAL_FAILURE(ExpectSameWeights(hf(), checkpoint()));
  ASSERT_TRUE(ConvertTo({.tp_size = 2}).ok());
  EXPECT_EQ(head_rows(0), 6);  // 11 rows and one of zeros
  EXPECT_EQ(head_rows(1), 6);
  ASSERT_TRUE(ConvertTo({.tp_size = 2, .use_parallel_embedding = true}).ok());
  EXPECT_EQ(head_rows(1), 0);
  ASSERT_TRUE(ConvertTo({.pp_size = 2}).ok());
  EXPECT_EQ(head_rows(0), 0);
  EXPECT_EQ(head_rows(1), 11);

  EXPECT_THAT(ConvertTo({.tp_size = 2, .use_embedding_sharing = true}).message(),
              HasSubstr("it needs use_parallel_embedding"));
  EXPECT_THAT(ConvertTo({.pp_size = 2, .use_embedding_sharing = true}).message(),
              HasSubstr("stages of pp_size 2"));
  Llama({}).Write(hf());
  EXPECT_THAT(ConvertTo({.use_embedding_sharing = true}).message(), HasSubstr("two tables"));
}

TEST_F(ShardingTest, WhatDoesNotDivideIsRefusedByName) {
  Llama({.num_layers = 2, .num_heads = 6, .num_kv_heads = 3}).Write(hf());
  EXPECT_THAT(ConvertTo({.tp_size = 4}).message(),
              HasSubstr("tp_size: got 4, num_attention_heads 6 is no multiple of it"));
  EXPECT_THAT(ConvertTo({.tp_size = 2}).message(),
              HasSubstr("tp_size: got 2, it must divide num_key_value_heads 3"));
  EXPECT_THAT(ConvertTo({.pp_size = 3}).message(), HasSubstr("pp_size: got 3, the model has 2"));
  EXPECT_THAT(ConvertTo({.tp_size = 0}).message(), HasSubstr("tp_size: got 0, at least 1"));
  EXPECT_THAT(ConvertTo({.pp_size = -2}).message(), HasSubstr("pp_size: got -2, at least 1"));
  EXPECT_THAT(ConvertTo({.use_parallel_embedding = true, .embedding_sharding_dim = 2}).message(),
              HasSubstr("embedding_sharding_dim: got 2, 0 or 1 is needed"));
  EXPECT_TRUE(ConvertTo({.tp_size = 3, .pp_size = 2}).ok());
  EXPECT_THAT(ConvertTo({.tp_size = 3, .use_parallel_embedding = true, .embedding_sharding_dim = 1})
                  .message(),
              HasSubstr("hidden_size (embedding_sharding_dim 1) 16"));
}

// Whatever the forms of the others are.
TEST_F(ShardingTest, ColumnsThatAFormKeepsTogetherAreNotCut) {
  Llama({.num_layers = 1, .num_heads = 8}).Write(hf());
  model::ModelConfig config = OpenWeightSource(hf(), {}).value()->config;
  config.quant_algo = model::QuantAlgo::kMixedPrecision;
  config.slot_forms = {{"transformer.layers.0.attention.qkv", {.dtype = DType::kI8}},
                       {"transformer.layers.0.mlp.proj", {.dtype = DType::kI4}}};
  ASSERT_EQ(model::Validate(config), Status::Ok());
  EXPECT_EQ(CheckSharding(config, {.ranks = {.tp_size = 4}}), Status::Ok());
  const Status odd = CheckSharding(config, {.ranks = {.tp_size = 8}});
  EXPECT_EQ(odd.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(odd.message(),
              HasSubstr("tp_size: got 8, which cuts the 24 columns of "
                        "transformer.layers.0.mlp.proj.weight into parts of 3; with int4 weights "
                        "only multiples of 2 are supported"));
  // Each row is one group with a zero point: kernels take 16 columns at a time.
  config.slot_forms = {
      {"transformer.layers.0.attention.dense", {.dtype = DType::kI8, .has_offsets = true}}};
  ASSERT_EQ(model::Validate(config), Status::Ok());
  EXPECT_EQ(CheckSharding(config, {.ranks = {.tp_size = 4}}), Status::Ok());  // 64 columns
  EXPECT_THAT(CheckSharding(config, {.ranks = {.tp_size = 8}}).message(),
              HasSubstr("parts of 8; with int8 weights with a zero point for each row only "
                        "multiples of 16 are supported"));
}

TEST_F(ShardingTest, MissingAndMisshapenTensorsNameTheirFile) {
  Llama({}).Write(hf());
  ASSERT_TRUE(ConvertTo({.tp_size = 2, .pp_size = 2}).ok());
  const auto path = checkpoint() / "config.json";
  const auto config = nlohmann::json::parse(*ReadFile(path));
  EXPECT_EQ(config["pipeline_layers"], nlohmann::json::parse("[[0, 2], [2, 3]]"));
  const auto error = [&](const char* field, const nlohmann::json& value) {
    nlohmann::json changed = config;
    changed[field] = value;
    EXPECT_TRUE(WriteFile(path, changed.dump()).ok());
    return OpenStatus().message();
  };
  EXPECT_THAT(error("pipeline_layers", {{0, 1}, {1, 3}}),
              HasSubstr("\"rank2.safetensors: transformer.layers.1.attention.dense.weight\""));
  for (const char* ranges : {"[[0, 3]]", "[[0, 2], [1, 3]]", "[[0, 2], [2, 4]]", "3", "[]"})
    EXPECT_THAT(error("pipeline_layers", nlohmann::json::parse(ranges)),
                HasSubstr("2 ranges that tile [0, 3) are needed"));
  EXPECT_THAT(error("vocab_size", 13),
              HasSubstr("rank0.safetensors: transformer.vocab_embedding.weight: expected shape "
                        "[13, 16], found [11, 16]"));
  EXPECT_EQ(error("pipeline_layers", nullptr), "") << "the rule of the specification is this one";
}

TEST_F(ShardingTest, KeysThatNobodyKnowsAreKept) {
  Llama({}).Write(hf());
  ASSERT_TRUE(ConvertTo({.tp_size = 2, .pp_size = 2}).ok());
  const auto path = checkpoint() / "config.json";
  auto config = nlohmann::json::parse(*ReadFile(path));
  config["producer"] = {{"name", "somebody"}};
  config["remove_duplicated_kv_heads"] = false;
  ASSERT_TRUE(WriteFile(path, config.dump()).ok());
  testing::internal::CaptureStderr();
  ASSERT_TRUE(Build({.checkpoint_dir = checkpoint(), .output_dir = dir_ / "engine"}).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("keys=producer\"\n"));
  const auto engine = nlohmann::json::parse(*ReadFile(dir_ / "engine" / "config.json"));
  EXPECT_EQ(engine["pretrained_config"]["producer"]["name"], "somebody");
  EXPECT_EQ(engine["pretrained_config"]["mapping"], config["mapping"]);
  EXPECT_EQ(engine["pretrained_config"]["pipeline_layers"], config["pipeline_layers"]);
}

TEST_F(ShardingTest, ConfigAloneCanBeSaved) {
  Llama({}).Write(hf());
  ASSERT_TRUE(ConvertTo({.tp_size = 2, .save_config_only = true}).ok());
  EXPECT_FALSE(FileExists(checkpoint() / "rank0.safetensors"));
  EXPECT_THAT(OpenStatus().message(), HasSubstr("rank0.safetensors is missing"));
}

TEST(EvenStages, FirstStagesTakeWhatIsLeftOver) {
  EXPECT_THAT(EvenStages(7, 3), ElementsAre(3, 2, 2));
  EXPECT_THAT(EvenStages(4, 2), ElementsAre(2, 2));
}

}  // namespace
}  // namespace inflight::builder
