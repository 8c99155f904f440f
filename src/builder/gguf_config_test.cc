// SPDX-License-Identifier: Apache-2.0
// GGUF files as model sources: what their metadata and tensors become, and what is refused. That
// whole models give the ids of transformers is shown in tests/tools/test_gguf.py.
#include "builder/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "artifact/test_files.h"
#include "base/file.h"
#include "builder/builder.h"
#include "builder/test_models.h"
#include "builder/weight_source.h"
#include "gguf/file.h"
#include "gguf/test_file.h"

namespace inflight::builder {
namespace {

using gguf::TestFile;
using gguf::ValueType;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kHeadDim = 8;

std::string RawFloats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// Row i of the first half of a head, then row i of the second (LlamaModel.permute).
std::vector<float> Paired(const std::vector<float>& values, size_t width) {
  std::vector<float> out;
  for (size_t head = 0; head < values.size() / (kHeadDim * width); ++head)
    for (size_t i = 0; i < kHeadDim / 2; ++i)
      for (const size_t half : {0, 1}) {
        const auto row = values.begin() +
                         static_cast<int64_t>((head * kHeadDim + half * kHeadDim / 2 + i) * width);
        out.insert(out.end(), row, row + static_cast<int64_t>(width));
      }
  return out;
}

class GgufConfigTest : public artifact::FileTest {
 protected:
  TestFile Metadata(const std::string& arch = "llama") {
    TestFile file;
    file.Text("general.architecture", arch);
    file.U32(arch + ".block_count", 1).U32(arch + ".context_length", 32);
    file.U32(arch + ".embedding_length", 16).U32(arch + ".feed_forward_length", 24);
    file.U32(arch + ".attention.head_count", 2).U32(arch + ".attention.head_count_kv", 1);
    file.F32(arch + ".attention.layer_norm_rms_epsilon", 1e-6F);
    file.U32("tokenizer.ggml.eos_token_id", 2);
    return file;
  }

  // The tensors of TinyLlama under their names in such files.
  void AddTensors(TestFile& file, bool is_paired = true) {
    const TestModel model = TinyLlama();
    constexpr std::pair<const char*, const char*> kNames[] = {
        {"model.embed_tokens", "token_embd"},
        {"model.layers.0.self_attn.q_proj", "blk.0.attn_q"},
        {"model.layers.0.self_attn.k_proj", "blk.0.attn_k"},
        {"model.layers.0.self_attn.v_proj", "blk.0.attn_v"},
        {"model.layers.0.self_attn.o_proj", "blk.0.attn_output"},
        {"model.layers.0.mlp.gate_proj", "blk.0.ffn_gate"},
        {"model.layers.0.mlp.up_proj", "blk.0.ffn_up"},
        {"model.layers.0.mlp.down_proj", "blk.0.ffn_down"},
        {"model.layers.0.input_layernorm", "blk.0.attn_norm"},
        {"model.layers.0.post_attention_layernorm", "blk.0.ffn_norm"},
        {"model.norm", "output_norm"},
        {"lm_head", "output"}};
    for (const auto& [from, to] : kNames) {
      const std::string name = std::string(from) + ".weight";
      const auto& spec = *std::ranges::find(model.tensors, name, &artifact::TensorSpec::name);
      std::vector<uint64_t> dims;
      for (int i = spec.shape.rank(); i-- > 0;)
        dims.push_back(static_cast<uint64_t>(spec.shape[i]));
      std::vector<float> values = model.Values(name);
      const std::string stored = to;
      if (is_paired && (stored == "blk.0.attn_q" || stored == "blk.0.attn_k"))
        values = Paired(values, 16);
      file.Tensor(stored + ".weight", 0, dims, RawFloats(values));
    }
  }

  std::filesystem::path Write(const TestFile& file) {
    std::filesystem::path path = dir() / "m.gguf";
    EXPECT_TRUE(WriteFile(path, file.Bytes()).ok());
    return path;
  }

  void ExpectRefused(const TestFile& file, StatusCode code, std::string_view words) {
    const auto source = OpenWeightSource(Write(file), {});
    ASSERT_FALSE(source.ok()) << words;
    EXPECT_EQ(source.status().code(), code) << source.status().ToString();
    EXPECT_THAT(source.status().message(), HasSubstr(words));
    EXPECT_THAT(source.status().message(), HasSubstr("m.gguf"));
  }
};

TEST_F(GgufConfigTest, ALlamaIsTheOneOfItsHuggingFaceDirectory) {
  TestFile file = Metadata();
  AddTensors(file);
  const std::filesystem::path path = Write(file);
  EXPECT_EQ(*Detect(path), SourceKind::kGguf);
  TinyLlama().Write(dir() / "hf");
  for (const std::string name : {"hf", "m.gguf"})
    ASSERT_TRUE(
        Convert(
            {.model_dir = dir() / name, .output_dir = dir() / ("of_" + name), .dtype = "float32"})
            .ok());
  for (const char* name : {"config.json", "rank0.safetensors"})
    EXPECT_EQ(*ReadFile(dir() / "of_hf" / name), *ReadFile(dir() / "of_m.gguf" / name)) << name;
}

TEST_F(GgufConfigTest, FieldsAreThoseOfTheMetadata) {
  TestFile file = Metadata();
  file.F32("llama.rope.freq_base", 5e5F).U32("llama.rope.dimension_count", kHeadDim);
  file.Text("llama.rope.scaling.type", "linear").F32("llama.rope.scaling.factor", 4);
  file.U32("tokenizer.ggml.bos_token_id", 1).U32("tokenizer.ggml.eot_token_id", 5);
  file.Texts("tokenizer.ggml.tokens", {"a", "b", "c", "d", "e", "f", "<|im_end|>", "<|end|>"});
  file.Numbers<int32_t>("tokenizer.ggml.token_type", ValueType::kI32, {1, 3, 3, 1, 1, 3, 3, 1});
  AddTensors(file);
  const auto source = OpenWeightSource(Write(file), {});
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const model::ModelConfig& config = (*source)->config;
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocab_size, 10);
  EXPECT_EQ(config.head_dim, kHeadDim);
  EXPECT_EQ(config.max_position_embeddings, 32);
  EXPECT_EQ(config.norm_eps, 1e-6F);
  EXPECT_EQ(config.rope_theta, 5e5);
  EXPECT_EQ(config.rope_scaling.kind, model::RopeScaling::Kind::kLinear);
  EXPECT_EQ(config.rope_scaling.factor, 4);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_EQ(config.dtype, DType::kF32);
  EXPECT_EQ(config.bos_id, 1);
  // eos, eot, and the control token that chat models end their turn with; <|end|> is a plain one.
  EXPECT_THAT(config.end_ids, ElementsAre(2, 5, 6));
}

TEST_F(GgufConfigTest, QwensRowsAreAsTheyStandAndItsBiasIsFound) {
  TestFile file = Metadata("qwen2");
  AddTensors(file, /*is_paired=*/false);
  for (const auto& [name, size] : {std::pair{"q", 16}, {"k", 8}, {"v", 8}})
    file.Tensor(std::string("blk.0.attn_") + name + ".bias", 0, {static_cast<uint64_t>(size)},
                RawFloats(KnownValues(1, size)));
  const auto source = OpenWeightSource(Write(file), {});
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_TRUE((*source)->config.qkv_bias);
  EXPECT_FALSE((*source)->config.dense_bias);
  std::vector<float> rows(16 * 16);
  CopyRows((*source)->recipes.at("transformer.layers.0.attention.qkv.weight"), 0, 16, DType::kF32,
           rows.data());
  EXPECT_EQ(rows, TinyLlama().Values("model.layers.0.self_attn.q_proj.weight"));
}

TEST_F(GgufConfigTest, PackedWeightsAreBfloat16UnlessAnotherDTypeIsAskedFor) {
  TestFile file = Metadata("qwen3");
  const std::string block = gguf::Raw(uint16_t{0x3c00}) + std::string(32, '\3');  // 3, 32 times
  file.Tensor("token_embd.weight", 8, {32, 1}, block);
  const auto source = OpenWeightSource(Write(file), {});
  ASSERT_FALSE(source.ok());  // of the wrong shape, and all else is missing
  artifact::StoredTensor packed{.name = "t",
                                .dtype = DType::kF32,
                                .shape = {2, 32},
                                .data = std::as_bytes(std::span(block)),
                                .codec = artifact::FindBlockCodec("Q8_0")};
  const std::string two = block + gguf::Raw(uint16_t{0x4000}) + std::string(32, '\xff');
  packed.data = std::as_bytes(std::span(two));
  const WeightRecipe recipe{.shape = {2, 32},
                            .parts = {{.tensor = &packed, .num_rows = 2, .num_columns = 32}}};
  std::vector<float> part(2 * 5);
  CopyBlock(recipe, {.row = 0, .num_rows = 2, .column = 20, .num_columns = 5}, DType::kF32,
            part.data());
  EXPECT_THAT(part, ElementsAre(3, 3, 3, 3, 3, -2, -2, -2, -2, -2));
  std::vector<BFloat16> whole(64);
  CopyRows(recipe, 0, 2, DType::kBF16, whole.data());
  EXPECT_EQ(whole[31].ToFloat(), 3);
  EXPECT_EQ(whole[32].ToFloat(), -2);
}

TEST_F(GgufConfigTest, Llama3RopeIsReadFromItsFactors) {
  // What convert_hf_to_gguf.py writes for theta 10000, factor 8, low 1, high 4, length 8192 and
  // heads of 8: wavelengths 2 pi 10000^(i/4) = 6.28, 62.8, 628 (short) and 6283 (between).
  const float between = [] {
    const double smooth = (8192 / 6283.185307179586 - 1) / 3;
    return static_cast<float>(1 / ((1 - smooth) / 8 + smooth));
  }();
  TestFile other = Metadata();
  AddTensors(other);
  other.Tensor("rope_freqs.weight", 0, {4}, RawFloats({1, 1, 1, between}));
  // The largest factor is not the rule's own, which no wavelength of this model is long enough for.
  ExpectRefused(other, StatusCode::kUnimplemented, "rope_freqs.weight: element 3");

  TestFile file = Metadata();
  file.F32("llama.rope.freq_base", 5e5F);  // 6.28, 167, 4443 and 118143
  const double smooth = (8192 / (6.283185307179586 * 707.10678118654755) - 1) / 3;
  AddTensors(file);
  file.Tensor("rope_freqs.weight", 0, {4},
              RawFloats({1, 1, static_cast<float>(1 / ((1 - smooth) / 32 + smooth)), 32}));
  const auto source = OpenWeightSource(Write(file), {});
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ((*source)->config.rope_scaling.kind, model::RopeScaling::Kind::kLlama3);
  EXPECT_EQ((*source)->config.rope_scaling.factor, 32);
  EXPECT_EQ((*source)->config.rope_scaling.original_max_position_embeddings, 8192);

  TestFile wrong = Metadata();
  AddTensors(wrong);
  wrong.Tensor("rope_freqs.weight", 0, {3}, RawFloats({1, 1, 1}));
  ExpectRefused(wrong, StatusCode::kInvalidArgument, "float32 [4] is needed");
}

TEST_F(GgufConfigTest, YarnIsReadFromItsKeys) {
  TestFile file = Metadata();
  file.Text("llama.rope.scaling.type", "yarn").F32("llama.rope.scaling.factor", 4);
  file.U32("llama.rope.scaling.original_context_length", 8);
  file.F32("llama.rope.scaling.yarn_beta_fast", 16).F32("llama.rope.scaling.yarn_beta_slow", 2);
  AddTensors(file);
  const auto source = OpenWeightSource(Write(file), {});
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const model::RopeScaling& scaling = (*source)->config.rope_scaling;
  EXPECT_EQ(scaling.kind, model::RopeScaling::Kind::kYarn);
  EXPECT_EQ(scaling.factor, 4);
  EXPECT_EQ(scaling.original_max_position_embeddings, 8);
  EXPECT_EQ(scaling.beta_fast, 16);
  EXPECT_EQ(scaling.beta_slow, 2);
  EXPECT_TRUE(scaling.truncate);
  EXPECT_FALSE(scaling.attention_factor);
}

TEST_F(GgufConfigTest, LongRopeIsKnownByItsFactors) {
  for (const bool has_type : {false, true}) {
    TestFile file = Metadata();
    if (has_type) file.Text("llama.rope.scaling.type", "longrope");
    file.U32("llama.rope.scaling.original_context_length", 8);
    file.F32("llama.rope.scaling.attn_factor", 1.25F);
    AddTensors(file);
    TestFile half = file;
    file.Tensor("rope_factors_short.weight", 0, {4}, RawFloats({1, 1.5F, 2, 3}));
    half.Tensor("rope_factors_short.weight", 0, {4}, RawFloats({1, 1.5F, 2, 3}));
    file.Tensor("rope_factors_long.weight", 0, {4}, RawFloats({2, 4, 8, 16}));
    const auto source = OpenWeightSource(Write(file), {});
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    const model::RopeScaling& scaling = (*source)->config.rope_scaling;
    EXPECT_EQ(scaling.kind, model::RopeScaling::Kind::kLongRope);
    EXPECT_EQ(scaling.original_max_position_embeddings, 8);
    EXPECT_EQ(scaling.attention_factor, 1.25);
    EXPECT_EQ(scaling.short_factors, (std::vector<double>{1, 1.5, 2, 3}));
    EXPECT_EQ(scaling.long_factors, (std::vector<double>{2, 4, 8, 16}));
    ExpectRefused(half, StatusCode::kInvalidArgument, "rope_factors_long.weight: is missing");
    half.Tensor("rope_factors_long.weight", 0, {3}, RawFloats({1, 1, 1}));
    ExpectRefused(half, StatusCode::kInvalidArgument, "rope_factors_long.weight: got float32 [3]");
  }
}

TEST_F(GgufConfigTest, WhatIsNotSupportedIsRefusedByName) {
  const auto with = [&](const auto& change) {
    TestFile file = Metadata();
    change(file);
    AddTensors(file);
    return file;
  };
  ExpectRefused(TestFile(), StatusCode::kInvalidArgument, "general.architecture: is missing");
  ExpectRefused(Metadata("rwkv7"), StatusCode::kUnimplemented,
                "general.architecture: got \"rwkv7\", llama, ");
  ExpectRefused(with([](TestFile& f) { f.U32("llama.expert_count", 8); }),
                StatusCode::kInvalidArgument, "expert_used_count: is missing");
  TestFile dense = Metadata("qwen3");
  AddTensors(dense.U32("qwen3.expert_count", 8), /*is_paired=*/false);
  ExpectRefused(dense, StatusCode::kUnimplemented, "qwen3: expert_count: got 8, only 0");
  ExpectRefused(with([](TestFile& f) { f.U32("llama.attention.sliding_window", 8); }),
                StatusCode::kUnimplemented, "'attention.sliding_window': got 8");
  ExpectRefused(with([](TestFile& f) { f.Text("llama.rope.scaling.type", "ntk"); }),
                StatusCode::kUnimplemented,
                "rope.scaling.type: got \"ntk\", none, linear, yarn and longrope are supported");
  ExpectRefused(
      with([](TestFile& f) {
        f.Text("llama.rope.scaling.type", "yarn").F32("llama.rope.scaling.attn_factor", 2);
      }),
      StatusCode::kUnimplemented, "rope.scaling.attn_factor");
  ExpectRefused(with([](TestFile& f) { f.F32("llama.rope.scaling.attn_factor", 2); }),
                StatusCode::kUnimplemented, "rope.scaling.attn_factor: got 2, only 1");
  ExpectRefused(with([](TestFile& f) { f.Text("llama.rope.scaling.type", "longrope"); }),
                StatusCode::kInvalidArgument, "rope.scaling.original_context_length: is missing");
  ExpectRefused(with([](TestFile& f) { f.U32("llama.rope.dimension_count", 4); }),
                StatusCode::kUnimplemented, "rope.dimension_count: got 4, only 8");
  ExpectRefused(with([](TestFile& f) { f.Text("general.type", "adapter"); }),
                StatusCode::kUnimplemented, "general.type: got 'adapter'");
  ExpectRefused(
      with([](TestFile& f) { f.Entry("split.count", ValueType::kU16, gguf::Raw(uint16_t{3})); }),
      StatusCode::kInvalidArgument,
      "split.count: got 3, the name of the first of so many parts must end with "
      "-00001-of-00003.gguf");
  ExpectRefused(with([](TestFile& f) { f.Tensor("blk.0.attn_sinks.weight", 0, {1}, "1234"); }),
                StatusCode::kUnimplemented, "'blk.0.attn_sinks.weight': LlamaForCausalLM has no");
  ExpectRefused(with([](TestFile& f) { f.Tensor("blk.0.t", 16, {256}, std::string(66, 'x')); }),
                StatusCode::kUnimplemented, "'blk.0.t': blocks of IQ2_XXS are not supported; F32");
  ExpectRefused(with([](TestFile& f) {
                  f.Numbers<int32_t>("llama.attention.head_count", ValueType::kI32, {2, 2});
                }),
                StatusCode::kInvalidArgument, "comes twice");
}

TEST_F(GgufConfigTest, MissingTensorsAndWrongShapesAreSaid) {
  ExpectRefused(Metadata(), StatusCode::kInvalidArgument, "vocab_size: is missing");
  TestFile file = Metadata();
  file.Tensor("token_embd.weight", 0, {8, 10}, std::string(320, '\0'));
  ExpectRefused(file, StatusCode::kInvalidArgument, "expected shape [10, 16], found [10, 8]");
  TestFile missing = Metadata();
  missing.Tensor("token_embd.weight", 0, {16, 10}, std::string(640, '\0'));
  ExpectRefused(missing, StatusCode::kInvalidArgument, "blk.0.attn_q.weight");
}

TEST_F(GgufConfigTest, IsNarrowedForAGpu) {
  TestFile file = Metadata();
  AddTensors(file);
  const auto path = Write(file);
  EXPECT_EQ((*OpenWeightSource(path, {}))->config.dtype, DType::kF32);
  const auto source = OpenWeightSource(path, {.target = DeviceKind::kCuda});
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ((*source)->config.dtype, DType::kBF16);
}

TEST_F(GgufConfigTest, TheTokenizerGoesWithACheckpoint) {
  TestFile file = Metadata();
  AddTensors(file);
  file.Text("tokenizer.ggml.model", "gpt2");
  ASSERT_TRUE(Convert({.model_dir = Write(file), .output_dir = dir() / "out"}).ok());
  const auto bytes = ReadFile(dir() / "out/tokenizer.gguf");
  ASSERT_TRUE(bytes.ok());
  const auto read = gguf::Parse(std::as_bytes(std::span(*bytes)), "tokenizer.gguf");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(**read->metadata.Text("tokenizer.ggml.model"), "gpt2");
  EXPECT_TRUE(read->tensors.empty());
}

}  // namespace
}  // namespace inflight::builder
