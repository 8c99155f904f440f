// SPDX-License-Identifier: Apache-2.0
// A decoder described by data: dimensions and the kinds of its parts. Families differ in tables of
// names and flags (families/), not in code. What a backend does not compute is refused by
// CheckSupported (supported.h).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/request.h"
#include "model/linear_form.h"
#include "ops/attention.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "tensor/dtype.h"

namespace inflight::model {

enum class PositionKind : uint8_t { kLearnedAbsolute, kRopeNeox, kRopeGptj };

// Which norms a layer has, h the residual stream and F attention or the feed-forward:
//   kPre    h = h + m F(Norm(h))          m the residual_multiplier
//   kPost   h = h + m Norm(F(h))
//   kBoth   h = h + m Norm(F(Norm(h)))
enum class NormPlacement : uint8_t { kPre, kPost, kBoth };

// Rotary scaling rules; formulas in docs/reference/artifacts.md. Dynamic changes nothing up to
// max_position_embeddings, and longer sequences are refused (model/limits.h). Of longrope an engine
// has its short factors or its long ones, by its longest sequence (model/rope.h).
struct RopeScaling {
  enum class Kind : uint8_t {
    kNone,
    kLinear,
    kLlama3,
    kDynamic,
    kYarn,
    kLongRope
  } kind = Kind::kNone;
  double factor = 1.0;            // of longrope 0: max_position_embeddings over the original ones
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  // llama3, yarn, longrope; of the latter two 0: max_position_embeddings
  int original_max_position_embeddings = 8192;
  double beta_fast = 32, beta_slow = 1;  // yarn: rotations over the original length
  bool truncate = true;                  // yarn: the pairs of those rotations are whole numbers
  // yarn and longrope: what cosines and sines are times; derived where it is not set.
  std::optional<double> attention_factor;
  std::vector<double> short_factors, long_factors;  // longrope: [RotaryDim / 2]
};

constexpr int kMaxMedusaHeads = 16;
constexpr int kMaxMedusaLayers = 16;

// Which part of a model a rank holds, of tp_size x pp_size ones (docs/multi-gpu.md). What a config
// with a part says of num_layers, heads, intermediate_size and expert_intermediate_size is the
// rank's own; the rest is the model's.
struct RankPart {
  int tp_rank = 0, tp_size = 1;
  int pp_rank = 0, pp_size = 1;
  int moe_ep_size = 1;  // of the tp_size ranks, so many hold different experts
  int first_layer = 0;  // of the num_layers that all stages have
  int num_layers = 0;
  int num_kv_heads = 0;                // of the model
  std::vector<int> stage_layers = {};  // [pp_size] how many each stage has
  // Which ranks hold Medusa's heads, whole: on GPUs each of the last stage, though all know how
  // many there are; else the first rank.
  bool heads_are_last = false;

  // The stage that has layer `layer` of the model.
  int StageOf(int layer) const {
    int stage = 0;
    for (; layer >= stage_layers[static_cast<size_t>(stage)]; ++stage)
      layer -= stage_layers[static_cast<size_t>(stage)];
    return stage;
  }
  // Ranks are numbered as by NVIDIA/TensorRT-LLM/tensorrt_llm/mapping.py: those beside each other
  // hold different experts, and those moe_ep_size apart a part of the same ones each.
  int moe_ep_rank() const { return tp_rank % moe_ep_size; }
  int moe_tp_rank() const { return tp_rank / moe_ep_size; }
  bool is_whole() const { return tp_size == 1 && pp_size == 1; }
  bool is_first_stage() const { return pp_rank == 0; }
  bool is_last_stage() const { return pp_rank == pp_size - 1; }
};

inline constexpr int kMaxLayers = 4096;

struct ModelConfig {
  std::string architecture;   // of its family (families/family.h), as in checkpoints
  DType dtype = DType::kF32;  // of weights and KV cache: float32, bfloat16, float16
  QuantAlgo quant_algo = QuantAlgo::kNone;
  int group_size = 0;           // of algorithms with groups, as of LinearForm
  bool has_zero_point = false;  // of the same: groups have offsets
  // Of kMixedPrecision: the linears that are quantised, by "transformer.layers.L.attention.qkv", L
  // counted over the layers that all stages have. The others have the model's dtype.
  std::map<std::string, LinearForm, std::less<>> slot_forms;
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
  NormPlacement norm_placement = NormPlacement::kPre;
  // Of kPre: attention and the feed-forward read the same residual stream, each through a norm of
  // its own or both through one:  h = h + m Attention(Norm(h)) + m Mlp(Norm'(h))
  bool parallel_residual = false;
  bool has_shared_norm = false;
  // A checkpoint's name of the norm that the feed-forward reads through, or that is behind
  // attention.
  std::string_view mlp_norm_name = "post_layernorm";
  ops::ActivationKind activation = ops::ActivationKind::kSilu;
  bool gated_mlp = true;
  bool qkv_bias = false;
  bool dense_bias = false;
  bool mlp_bias = false;
  bool head_bias = false;
  bool qk_norm = false;  // an RMSNorm of each head of q and of k, before they are rotated; its
                         // weights are one head's, the same for all heads
  bool has_wide_qk_norm = false;  // of qk_norm: of all heads of q together, and of all of k
  // Hugging Face's files hold the weights of norms less 1. Checkpoints hold them whole, in float32,
  // where a 16-bit dtype would round away what the difference has.
  bool has_one_centered_norms = false;
  bool tied_embeddings = false;

  // Experts (arXiv:2101.03961): layers whose feed-forward is, token by token, the sum of those
  // experts_per_token of num_experts gated ones that a router chose (ops/experts.h). They stand in
  // place of the feed-forward of intermediate_size, which dense layers have.
  int num_experts = 0;  // 0: all layers are dense
  int experts_per_token = 0;
  int expert_intermediate_size = 0;  // of each expert
  // Experts behind those, of every token, with the weight of a logit of their own (ops/experts.h).
  // A shared expert of several times expert_intermediate_size is so many.
  int num_shared_experts = 0;
  bool has_renormalized_experts = true;  // the chosen experts' weights add up to 1
  bool has_expert_biases = false;        // of the router and of each expert's linears
  float expert_limit = 0;  // of ops::ExpertGatedLinearParams; 0: experts go through `activation`
  std::vector<bool> dense_layers;  // [LayersOfModel] which layers have no experts; empty: none

  // Medusa (arXiv:2401.10774): heads beside lm_head, each of which names the token that comes one
  // place further than the one before it (medusa_heads.h). Of the model's dtype, whatever
  // quant_algo.
  int num_medusa_heads = 0;
  int num_medusa_layers = 1;  // residual blocks of a head

  // Factors, each as the model was trained with: of the embedding table's rows; of what attention
  // and feed-forward add to the residual stream; of q k^T, 1 / sqrt(head_dim) where it is not set.
  float embedding_scale = 1;
  bool has_root_embedding_scale =
      false;  // sqrt(hidden_size), rounded to the model's dtype, instead
  float residual_multiplier = 1;
  std::optional<float> attention_multiplier;
  float logits_scale = 1;  // of logits, before a cap
  // x becomes cap * tanh(x / cap): of q k^T times its factor, and of logits. 0 = as they are.
  float attention_softcap = 0;
  bool has_attention_sinks = false;  // a logit of each head beside its keys' (ops/attention.h)
  float logits_softcap = 0;

  PositionKind position = PositionKind::kRopeNeox;
  double rope_theta = 10000.0;
  double rotary_fraction = 1.0;  // of each head's elements, its first ones: they are rotated
  RopeScaling rope_scaling;
  std::vector<bool> rope_layers;  // [LayersOfModel] which layers are rotated; empty: all are

  // Layers of which a token sees the last sliding_window tokens, its own the last of them.
  int sliding_window = 0;            // 0: no layer is such a one
  std::vector<bool> sliding_layers;  // [LayersOfModel]; empty: all are, where there is a window
  // The base of those layers' rope, which is not scaled; they have that of all layers where it is
  // not set.
  std::optional<double> sliding_rope_theta;

  // From generation_config.json or config.json; the default of requests.
  std::vector<TokenId> end_ids;
  std::optional<TokenId> bos_id;
  std::optional<TokenId> pad_id;

  RankPart part;
};

// Rows of the embedding table and of lm_head that a rank holds: ids from VocabRows * tp_rank on.
// Those of the last ranks may be more than the vocabulary has, and zeros.
int VocabRows(const ModelConfig& config);

// Elements of a head that are rotated; 0 with learned positions.
int RotaryDim(const ModelConfig& config);

// The first KV head of a rank of a model that has `num_kv_heads`: with fewer heads than ranks,
// consecutive ranks hold the same one.
constexpr int FirstKvHead(int num_kv_heads, int tp_size, int tp_rank) {
  return tp_rank * num_kv_heads / tp_size;
}

// Those of all ranks.
int LayersOfModel(const ModelConfig& config);

// Whether layer `layer` of the model has a window.
bool IsSliding(const ModelConfig& config, int layer);

// What rows of the embedding table are times, in the dtype that the model is computed in.
float EmbeddingScale(const ModelConfig& config);

// Whether positions turn q and k of layer `layer` of the model.
bool HasRope(const ModelConfig& config, int layer);

// Whether layer `layer` of the model has experts, and whether any layer has none.
bool HasExperts(const ModelConfig& config, int layer);
bool HasDenseLayers(const ModelConfig& config);

// The experts of a layer that a rank holds, equally many of those that are routed; of shared ones,
// which no number has to divide, the last ranks may have one more.
constexpr ops::HeldExperts ExpertsOfRank(int num_routed, int num_shared, int ep_size, int ep_rank) {
  const int first_shared = num_shared * ep_rank / ep_size;
  return {.first = num_routed / ep_size * ep_rank,
          .num_routed = num_routed / ep_size,
          .num_shared = num_shared * (ep_rank + 1) / ep_size - first_shared};
}
ops::HeldExperts ExpertsOfRank(const ModelConfig& config);
int RouterRows(const ModelConfig& config);  // logits of a router, that of shared experts the last
// Of a token, those that this rank may have to compute.
int ExpertsOfToken(const ModelConfig& config);

// Tokens that layer `layer` of the model sees; 0 = all.
int WindowOf(const ModelConfig& config, int layer);

// The dtype of the layers' linear weights: int8, int4, f8e4m3 or the model's; where it is not one
// for all, int8 before int4 before the model's.
DType LinearDType(const ModelConfig& config);

// The form of one linear, "transformer.layers.L.attention.qkv", L counted over the layers that all
// stages have; and all forms that linears have, each once.
LinearForm FormOf(const ModelConfig& config, std::string_view linear);
std::vector<LinearForm> FormsOf(const ModelConfig& config);
// The form of the embedding table ("transformer.vocab_embedding") or of "lm_head": of a tied table
// that of the embedding. Tables of integers are the CPU's (BackendFacts::has_integer_tables).
inline constexpr std::string_view kEmbeddingStem = "transformer.vocab_embedding";
inline constexpr std::string_view kHeadStem = "lm_head";
LinearForm FormOfTable(const ModelConfig& config, std::string_view stem);
std::string_view StemOfHead(const ModelConfig& config);  // of a tied table the embedding's
bool HasQuantizedHead(const ModelConfig& config);

// Gives the head int8 where the linears are integers, as quantize_lm_head asks for: a scale for
// each row, or each group of the linears' size. A tied table has the form at both ends, where the
// backend has embedding tables of integers. The model becomes one of kMixedPrecision; a head that
// has a form keeps it. Others are left to quantize_lm_head, of which Validate says what it takes.
void QuantizeHead(ModelConfig& config, bool has_integer_tables);
// Whether the model is what asking for these makes of one without any; empty is any.
struct QuantizationWish {
  std::optional<QuantAlgo> algo;
  std::optional<int> group_size;
  bool quantize_lm_head = false;
};
bool Grants(const ModelConfig& config, const QuantizationWish& wish);

// Whether any experts are in int8 or int4 that CUDA's products do not read as they are
// (ops/tensor_core_order.h).
bool HasExpertsToWiden(const ModelConfig& config);
// Whether any linear is FP8 in groups.
bool HasGroupedFp8(const ModelConfig& config);
// Whether the embedding table has a form of integers; whether it or lm_head has.
bool HasQuantizedEmbedding(const ModelConfig& config);
bool HasQuantizedTables(const ModelConfig& config);
// Whether any linear has its columns in an order of its own.
bool HasColumnOrder(const ModelConfig& config);
bool HasScaleBlocks(const ModelConfig& config);

// The dtype of the KV cache: f8e4m3 or the model's.
DType KvDType(const ModelConfig& config);
// Elements of a token's row of it, of one head (ops::KvCacheView::row_dim).
int KvRowDim(const ModelConfig& config, DeviceKind device);

// What a user should know of how quantised weights are computed here; empty for float models.
std::string QuantizationNote(const ModelConfig& config);

// Checks ranges, and what parts of a model ask of each other: names the field, the value and the
// bound.
Status Validate(const ModelConfig& config);

// The part of Validate that quant_algo and what belongs to it ask for; dimensions are in range.
Status CheckQuantization(const ModelConfig& config);

}  // namespace inflight::model
