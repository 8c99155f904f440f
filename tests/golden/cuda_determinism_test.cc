// SPDX-License-Identifier: Apache-2.0
// --deterministic on a GPU: a request's answer is made of the request alone, for each form of
// weights and of KV cache. Random models wide enough that the library would cut their sums.
#include <gtest/gtest.h>

#include "builder/builder.h"
#include "determinism_cases.h"
#include "model/families/families.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {
namespace {

struct Form {
  std::string name;
  DType dtype = DType::kBF16;
  model::QuantAlgo algo = model::QuantAlgo::kNone;
  bool fp8_kv_cache = false;
  bool is_gpt = false;
  int head_dim = 64;
  void (*change)(model::ModelConfig& config) = nullptr;
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

model::ModelConfig ConfigOf(const Form& form) {
  model::ModelConfig config =
      model::FamilyOf(form.is_gpt ? "GPT2LMHeadModel" : "LlamaForCausalLM").value()->config;
  config.dtype = form.dtype;
  config.quant_algo = form.algo;
  config.fp8_kv_cache = form.fp8_kv_cache;
  config.vocab_size = 1001;
  config.hidden_size = 1024;
  config.num_layers = 3;
  config.num_heads = 1024 / form.head_dim;
  config.num_kv_heads = form.is_gpt ? config.num_heads : config.num_heads / 4;
  config.tied_embeddings = form.is_gpt;
  config.head_dim = form.head_dim;
  config.intermediate_size = 4096;
  config.max_position_embeddings = 512;
  if (form.change != nullptr) form.change(config);
  return config;
}

// What families differ in beside Llama and GPT-2, as much of it as one model can have.
void AddNormsFactorsAndCaps(model::ModelConfig& config) {
  config.norm_placement = model::NormPlacement::kBoth;
  config.qk_norm = config.has_wide_qk_norm = true;
  config.embedding_scale = 12;
  config.residual_multiplier = 0.22F;
  config.logits_scale = 0.5F;
  config.attention_softcap = 20;
  config.has_attention_sinks = true;
  config.logits_softcap = 30;
  config.rope_layers = {true, true, false};
  config.sliding_window = 70;
  config.sliding_layers = {true, false, false};
  config.sliding_rope_theta = 5000;
}

// A dense layer stands between those with experts, of which every token has a shared one.
void AddExperts(model::ModelConfig& config) {
  config.num_experts = 11;
  config.experts_per_token = 3;
  config.num_shared_experts = 1;
  config.expert_intermediate_size = 256;
  config.dense_layers = {false, true, false};
}

void MakeParallel(model::ModelConfig& config) {
  config.parallel_residual = config.has_shared_norm = true;
  config.head_bias = true;
  config.position = model::PositionKind::kRopeGptj;
}

class CudaDeterminismTest : public testing::TestWithParam<Form> {};

TEST_P(CudaDeterminismTest, ARequestAnswersAloneWhatItAnswersInEveryOtherWay) {
  NEED_TEST_GPU();
  Device& device = *TestGpu().value();
  const auto engine = builder::Random(ConfigOf(GetParam()),
                                      {.max_batch_size = 16,
                                       .max_num_tokens = 512,
                                       .max_seq_len = 512,
                                       .max_input_len = 480,
                                       .max_beam_width = 3},
                                      /*seed=*/1, device);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  ExpectSameAnswersInEveryWay(*engine, device, device, "cuda", /*num_rows=*/6);
}

INSTANTIATE_TEST_SUITE_P(
    Forms, CudaDeterminismTest,
    testing::Values(
        Form{.name = "llama_bfloat16"},
        Form{.name = "llama_float16_fp8_kv",
             .dtype = DType::kF16,
             .fp8_kv_cache = true,
             .head_dim = 128},
        Form{.name = "llama_float32", .dtype = DType::kF32},
        Form{.name = "gpt2_float32", .dtype = DType::kF32, .is_gpt = true},
        Form{.name = "norms_factors_and_caps_float32",
             .dtype = DType::kF32,
             .head_dim = 128,
             .change = AddNormsFactorsAndCaps},
        Form{.name = "experts_float32", .dtype = DType::kF32, .change = AddExperts},
        Form{.name = "gpt2_bfloat16", .is_gpt = true},
        Form{.name = "norms_factors_and_caps_bfloat16",
             .head_dim = 256,
             .change = AddNormsFactorsAndCaps},
        Form{.name = "experts_bfloat16", .change = AddExperts},
        Form{
            .name = "experts_float16", .dtype = DType::kF16, .head_dim = 128, .change = AddExperts},
        Form{.name = "experts_fp8",
             .algo = model::QuantAlgo::kFp8PerChannelPerToken,
             .change = AddExperts},
        Form{.name = "parallel_float16", .dtype = DType::kF16, .change = MakeParallel},
        Form{.name = "parallel_fp8",
             .algo = model::QuantAlgo::kFp8PerChannelPerToken,
             .change = MakeParallel},
        Form{.name = "llama_fp8",
             .algo = model::QuantAlgo::kFp8PerChannelPerToken,
             .fp8_kv_cache = true,
             .head_dim = 256},
        Form{.name = "gpt2_fp8", .algo = model::QuantAlgo::kFp8PerChannelPerToken, .is_gpt = true},
        Form{.name = "llama_int8", .algo = model::QuantAlgo::kW8A16},
        Form{.name = "llama_float16_int4", .dtype = DType::kF16, .algo = model::QuantAlgo::kW4A16}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace inflight::golden
