// SPDX-License-Identifier: Apache-2.0
// Which stored rows of a Hugging Face directory make a checkpoint's tensors, where the names of
// both do not say it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "builder/test_models.h"
#include "builder/weight_source.h"

namespace inflight::builder {
namespace {

using testing::HasSubstr;

class HfRecipes : public testing::Test {
 protected:
  ~HfRecipes() override { std::filesystem::remove_all(dir_); }
  std::unique_ptr<WeightSource> Open(const TestModel& model) {
    std::filesystem::remove_all(dir_);
    model.Write(dir_);
    auto source = OpenWeightSource(dir_, {});
    EXPECT_TRUE(source.ok()) << source.status().ToString();
    return source.ok() ? std::move(*source) : nullptr;
  }
  static std::vector<float> All(const WeightSource& source, const std::string& name) {
    const WeightRecipe& recipe = source.recipes.at(name);
    std::vector<float> values(static_cast<size_t>(recipe.shape.num_elements()));
    CopyRows(recipe, 0, recipe.shape[0], DType::kF32, values.data());
    return values;
  }
  std::filesystem::path dir_ =
      std::filesystem::path(testing::TempDir()) / ("hf_recipes_" + std::to_string(getpid()));
};

// 4 query heads and 2 kv heads of 8: stored are q0 q1 k0 v0 q2 q3 k1 v1.
TestModel TinyFalcon() {
  const std::string layer = "transformer.h.0.";
  return {{{"architectures", {"FalconForCausalLM"}},
           {"hidden_size", 32},
           {"ffn_hidden_size", 16},
           {"num_hidden_layers", 1},
           {"num_attention_heads", 4},
           {"num_kv_heads", 2},
           {"new_decoder_architecture", true},
           {"vocab_size", 10}},
          {{"transformer.word_embeddings.weight", DType::kF32, {10, 32}},
           {layer + "ln_attn.weight", DType::kF32, {32}},
           {layer + "ln_attn.bias", DType::kF32, {32}},
           {layer + "ln_mlp.weight", DType::kF32, {32}},
           {layer + "ln_mlp.bias", DType::kF32, {32}},
           {layer + "self_attention.query_key_value.weight", DType::kF32, {64, 32}},
           {layer + "self_attention.dense.weight", DType::kF32, {32, 32}},
           {layer + "mlp.dense_h_to_4h.weight", DType::kF32, {16, 32}},
           {layer + "mlp.dense_4h_to_h.weight", DType::kF32, {32, 16}},
           {"transformer.ln_f.weight", DType::kF32, {32}},
           {"transformer.ln_f.bias", DType::kF32, {32}}}};
}

TEST_F(HfRecipes, HeadsComeOutOfTheirGroups) {
  const TestModel model = TinyFalcon();
  const auto source = Open(model);
  ASSERT_NE(source, nullptr);
  const auto stored = model.Values("transformer.h.0.self_attention.query_key_value.weight");
  const auto found = All(*source, "transformer.layers.0.attention.qkv.weight");
  constexpr size_t kHead = 8 * 32;
  constexpr size_t kStoredHeads[] = {0, 1, 4, 5, 2, 6, 3, 7};  // of q0 q1 q2 q3 k0 k1 v0 v1
  for (size_t head = 0; head < std::size(kStoredHeads); ++head)
    EXPECT_TRUE(std::equal(found.begin() + static_cast<int64_t>(head * kHead),
                           found.begin() + static_cast<int64_t>((head + 1) * kHead),
                           stored.begin() + static_cast<int64_t>(kStoredHeads[head] * kHead)))
        << head;
  EXPECT_EQ(All(*source, "transformer.layers.0.input_layernorm.weight"),
            model.Values("transformer.h.0.ln_attn.weight"));
  EXPECT_EQ(All(*source, "transformer.layers.0.mlp_layernorm.weight"),
            model.Values("transformer.h.0.ln_mlp.weight"));
}

TEST_F(HfRecipes, MissingTensorsHaveTheFirstOfTheirNames) {
  TestModel model = TinyFalcon();
  model.Remove("transformer.h.0.ln_attn.weight");
  std::filesystem::remove_all(dir_);
  model.Write(dir_);
  EXPECT_THAT(OpenWeightSource(dir_, {}).status().message(),
              HasSubstr("transformer.h.0.input_layernorm.weight"));
}

TEST_F(HfRecipes, PositionsOfOptBeginAtTheThirdRow) {
  const std::string layer = "model.decoder.layers.0.";
  TestModel model = {{{"architectures", {"OPTForCausalLM"}},
                      {"hidden_size", 8},
                      {"ffn_dim", 16},
                      {"num_hidden_layers", 1},
                      {"num_attention_heads", 1},
                      {"max_position_embeddings", 20},
                      {"enable_bias", false},
                      {"vocab_size", 10}},
                     {{"model.decoder.embed_tokens.weight", DType::kF32, {10, 8}},
                      {"model.decoder.embed_positions.weight", DType::kF32, {22, 8}},
                      {"model.decoder.final_layer_norm.weight", DType::kF32, {8}},
                      {"model.decoder.final_layer_norm.bias", DType::kF32, {8}}}};
  for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
    model.tensors.push_back({layer + "self_attn." + name + ".weight", DType::kF32, {8, 8}});
  for (const char* name : {"self_attn_layer_norm", "final_layer_norm"})
    for (const char* end : {".weight", ".bias"})
      model.tensors.push_back({layer + name + end, DType::kF32, {8}});
  model.tensors.push_back({layer + "fc1.weight", DType::kF32, {16, 8}});
  model.tensors.push_back({layer + "fc2.weight", DType::kF32, {8, 16}});
  const auto source = Open(model);
  ASSERT_NE(source, nullptr);
  const auto stored = model.Values("model.decoder.embed_positions.weight");
  EXPECT_EQ(All(*source, "transformer.position_embedding.weight"),
            std::vector<float>(stored.begin() + 2 * 8, stored.end()));
  model.Tensor("model.decoder.embed_positions.weight").shape = {20, 8};
  model.Write(dir_);
  EXPECT_THAT(OpenWeightSource(dir_, {}).status().message(),
              HasSubstr("embed_positions.weight: expected shape [22, 8], found [20, 8]"));
}

// Gemma 3 with a part that sees images: its names are those of Llama behind a prefix, and so is the
// head's.
TEST_F(HfRecipes, AHeadBelowAPrefixIsTheHead) {
  TestModel model = TinyLlama();
  for (artifact::TensorSpec& tensor : model.tensors) tensor.name = "language_model." + tensor.name;
  const std::string layer = "language_model.model.layers.0.";
  for (const char* name : {"pre_feedforward_layernorm", "post_feedforward_layernorm"})
    model.tensors.push_back({layer + name + ".weight", DType::kF32, {16}});
  for (const char* name : {"self_attn.q_norm", "self_attn.k_norm"})
    model.tensors.push_back({layer + name + ".weight", DType::kF32, {8}});
  nlohmann::json text = model.config;
  text.erase("architectures");
  text.update({{"head_dim", 8}, {"sliding_window", 8}, {"query_pre_attn_scalar", 8}});
  model.config = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                  {"tie_word_embeddings", false},
                  {"text_config", text}};
  const auto source = Open(model);
  ASSERT_NE(source, nullptr);
  EXPECT_FALSE(source->config.tied_embeddings);
  EXPECT_EQ(All(*source, "lm_head.weight"), model.Values("language_model.lm_head.weight"));
  model.Remove("language_model.lm_head.weight");
  EXPECT_TRUE(Open(model)->config.tied_embeddings);
}

}  // namespace
}  // namespace inflight::builder
