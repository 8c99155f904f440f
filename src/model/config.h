// SPDX-License-Identifier: Apache-2.0
// A decoder described by data (DESIGN 2.4): dimensions and the kinds of its parts. Families differ
// in tables of names and flags, not in code.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/request.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "tensor/dtype.h"

namespace inflight::model {

enum class PositionKind : uint8_t { kLearnedAbsolute, kRopeNeox, kRopeGptj };

// Rotary scaling rules; formulas in spec/engine.md 1.11. Dynamic changes nothing up to
// max_position_embeddings, and longer sequences are refused (model/limits.h).
struct RopeScaling {
  enum class Kind : uint8_t { kNone, kLinear, kLlama3, kDynamic } kind = Kind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;                 // llama3
  double high_freq_factor = 4.0;                // llama3
  int original_max_position_embeddings = 8192;  // llama3
};

// How the weights of the layers' linears are stored; the names are those of "quant_algo" in
// checkpoints (spec/engine.md 1.9.7). Embeddings, norms and biases keep the model's dtype, and so
// does lm_head but for quantize_lm_head.
enum class QuantAlgo : uint8_t {
  kNone,
  kW8A16,                  // int8, a scale per output channel (1.9.1)
  kW4A16,                  // int4, likewise
  kFp8PerChannelPerToken,  // e4m3, a scale per output channel; activations e4m3, a scale per token.
                           // CUDA only
};
std::string_view QuantAlgoName(QuantAlgo algo);  // "W8A16"; empty for kNone
std::optional<QuantAlgo> QuantAlgoFromName(std::string_view name);

struct ModelConfig {
  std::string
      architecture;  // "LlamaForCausalLM", "GPT2LMHeadModel": as in the checkpoint's config.json
  DType dtype = DType::kF32;  // of weights and KV cache: float32, bfloat16, float16
  QuantAlgo quant_algo = QuantAlgo::kNone;
  bool fp8_kv_cache = false;      // "kv_cache_quant_algo": "FP8"; scales of 1. CUDA only
  bool quantize_lm_head = false;  // as the layers' linears, which are FP8: "exclude_modules" are
                                  // given and lm_head is not among them
  int vocab_size = 0;
  int hidden_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int intermediate_size = 0;
  int max_position_embeddings = 0;
  ops::NormKind norm = ops::NormKind::kRmsNorm;
  float norm_eps = 1e-5F;
  ops::ActivationKind activation = ops::ActivationKind::kSilu;
  bool gated_mlp = true;
  bool attention_bias = false;  // on qkv and dense
  bool mlp_bias = false;
  bool tied_embeddings = false;
  PositionKind position = PositionKind::kRopeNeox;
  double rope_theta = 10000.0;
  double rotary_fraction = 1.0;
  RopeScaling rope_scaling;
  std::vector<TokenId>
      end_ids;  // from generation_config.json or config.json; the default of requests
  std::optional<TokenId> bos_id;
  std::optional<TokenId> pad_id;
};

// The dtype of the layers' linear weights: int8, int4, f8e4m3 or the model's.
DType LinearDType(const ModelConfig& config);

// The dtype of the KV cache: f8e4m3 or the model's.
DType KvDType(const ModelConfig& config);

// What a user should know of how quantised weights are computed here; empty for float models.
std::string_view QuantizationNote(const ModelConfig& config);

// Checks ranges and the combinations that are built: names the field, the value and the bound.
Status Validate(const ModelConfig& config);

}  // namespace inflight::model
