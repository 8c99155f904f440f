// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/status_macros.h"
#include "model/rope.h"
#include "tensor/element.h"

namespace inflight::model {
namespace {

// Bounds are generous against published models (vocabulary 2^18, hidden size 2^14, 126 layers) and
// small enough that no product of three of them overflows 64 bits.
constexpr int kMaxVocabSize = 1 << 24;
constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxHeads = 4096;
constexpr int kMaxHeadDim = 1024;
constexpr int kMaxPositions = 1 << 24;

Status CheckRange(std::string_view field, int value, int min, int max) {
  if (value >= min && value <= max) return Status::Ok();
  return InvalidArgument(
      fmt::format("{}: got {}, a number from {} to {} is needed", field, value, min, max));
}

Status CheckPositive(std::string_view field, double value) {
  if (std::isfinite(value) && value > 0) return Status::Ok();
  return InvalidArgument(fmt::format("{}: got {}, a positive number is needed", field, value));
}

Status CheckDimensions(const ModelConfig& config) {
  RETURN_IF_ERROR(CheckRange("vocab_size", config.vocab_size, 1, kMaxVocabSize));
  RETURN_IF_ERROR(CheckRange("hidden_size", config.hidden_size, 1, kMaxWidth));
  RETURN_IF_ERROR(CheckRange("num_layers", config.num_layers, 1, kMaxLayers));
  RETURN_IF_ERROR(CheckRange("num_heads", config.num_heads, 1, kMaxHeads));
  RETURN_IF_ERROR(CheckRange("num_kv_heads", config.num_kv_heads, 1, config.num_heads));
  RETURN_IF_ERROR(CheckRange("head_dim", config.head_dim, 8, kMaxHeadDim));
  RETURN_IF_ERROR(CheckRange("intermediate_size", config.intermediate_size, 1, kMaxWidth));
  RETURN_IF_ERROR(
      CheckRange("max_position_embeddings", config.max_position_embeddings, 1, kMaxPositions));
  if (config.num_heads % config.num_kv_heads != 0)
    return InvalidArgument(fmt::format("num_kv_heads: got {}, num_heads {} is no multiple of it",
                                       config.num_kv_heads, config.num_heads));
  if (config.head_dim % 8 != 0)
    return Unimplemented(
        fmt::format("head_dim: got {}, only multiples of 8 are supported", config.head_dim));
  return Status::Ok();
}

// Where an expert's rows begin in a packed weight a panel begins (ops/experts.h).
Status CheckExpertWidth(std::string_view field, int width) {
  if (width % ops::kExpertPanel == 0) return Status::Ok();
  return Unimplemented(fmt::format("{}: got {}, with experts only multiples of {} are supported",
                                   field, width, ops::kExpertPanel));
}

Status CheckExperts(const ModelConfig& config) {
  if (config.num_experts == 0) return Status::Ok();
  RETURN_IF_ERROR(CheckRange("num_experts", config.num_experts, 1, ops::kMaxExperts));
  RETURN_IF_ERROR(CheckRange("num_shared_experts", config.num_shared_experts, 0,
                             ops::kMaxExperts - config.num_experts));
  RETURN_IF_ERROR(
      CheckRange("num_experts_per_tok", config.experts_per_token, 1, config.num_experts));
  RETURN_IF_ERROR(
      CheckRange("moe_intermediate_size", config.expert_intermediate_size, 1, kMaxWidth));
  RETURN_IF_ERROR(CheckExpertWidth("moe_intermediate_size", config.expert_intermediate_size));
  RETURN_IF_ERROR(CheckExpertWidth("hidden_size", config.hidden_size));
  if (!config.dense_layers.empty() &&
      config.dense_layers.size() != static_cast<size_t>(LayersOfModel(config)))
    return InvalidArgument(fmt::format("mlp_only_layers: got {}, the model has {} layers",
                                       config.dense_layers.size(), LayersOfModel(config)));
  if (!config.gated_mlp || config.mlp_bias)
    return Unimplemented(
        "num_experts: only gated experts beside layers without bias are supported");
  if (config.expert_limit != 0) RETURN_IF_ERROR(CheckPositive("swiglu_limit", config.expert_limit));
  return Status::Ok();
}

Status CheckFactors(const ModelConfig& config) {
  for (const auto& [name, value] :
       {std::pair{"embedding_scale", config.embedding_scale},
        std::pair{"residual_multiplier", config.residual_multiplier},
        std::pair{"attention_multiplier", config.attention_multiplier.value_or(1)},
        std::pair{"logits_scale", config.logits_scale}})
    RETURN_IF_ERROR(CheckPositive(name, value));
  for (const auto& [name, value] : {std::pair{"attention_softcap", config.attention_softcap},
                                    std::pair{"logits_softcap", config.logits_softcap}})
    if (value != 0) RETURN_IF_ERROR(CheckPositive(name, value));
  return Status::Ok();
}

Status CheckParallel(const ModelConfig& config) {
  if (config.parallel_residual && config.norm_placement != NormPlacement::kPre)
    return InvalidArgument(
        "parallel_residual: got true, only beside norms before attention and feed-forward");
  if (config.has_shared_norm && !config.parallel_residual)
    return InvalidArgument("has_shared_norm: got true, only beside parallel_residual");
  return Status::Ok();
}

Status CheckWindows(const ModelConfig& config) {
  RETURN_IF_ERROR(CheckRange("sliding_window", config.sliding_window, 0, kMaxPositions));
  if (!config.sliding_layers.empty() &&
      config.sliding_layers.size() != static_cast<size_t>(LayersOfModel(config)))
    return InvalidArgument(fmt::format("layer_types: got {}, the model has {} layers",
                                       config.sliding_layers.size(), LayersOfModel(config)));
  if (std::ranges::count(config.sliding_layers, true) > 0 && config.sliding_window == 0)
    return InvalidArgument("sliding_window: is missing, layer_types has layers that need one");
  if (config.sliding_rope_theta)
    RETURN_IF_ERROR(CheckPositive("rope_local_base_freq", *config.sliding_rope_theta));
  return Status::Ok();
}

// The lengths of both lists are checked here, too: kernels read so many.
Status CheckLongRope(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const auto num_pairs = static_cast<size_t>(RotaryDim(config) / 2);
  for (const auto& [name, factors] : {std::pair{"short_factor", &scaling.short_factors},
                                      std::pair{"long_factor", &scaling.long_factors}}) {
    if (factors->size() != num_pairs)
      return InvalidArgument(
          fmt::format("rope_scaling: {}: got {} numbers, {} are needed, one for each rotated pair",
                      name, factors->size(), num_pairs));
    for (const double factor : *factors)
      RETURN_IF_ERROR(CheckPositive(fmt::format("rope_scaling: {}", name), factor));
  }
  if (scaling.factor != 0) RETURN_IF_ERROR(CheckPositive("rope_scaling: factor", scaling.factor));
  return CheckRange("rope_scaling: original_max_position_embeddings", OriginalLength(config), 2,
                    kMaxPositions);
}

Status CheckYarn(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  if (!(config.rope_theta > 1))
    return InvalidArgument(
        fmt::format("rope_theta: got {}, with rope_scaling yarn a number above 1 is needed",
                    config.rope_theta));
  RETURN_IF_ERROR(CheckPositive("rope_scaling: factor", scaling.factor));
  RETURN_IF_ERROR(CheckPositive("rope_scaling: beta_fast", scaling.beta_fast));
  RETURN_IF_ERROR(CheckPositive("rope_scaling: beta_slow", scaling.beta_slow));
  return CheckRange("rope_scaling: original_max_position_embeddings", OriginalLength(config), 1,
                    kMaxPositions);
}

Status CheckRope(const ModelConfig& config) {
  if (config.position == PositionKind::kLearnedAbsolute) return Status::Ok();
  if (!config.rope_layers.empty() &&
      config.rope_layers.size() != static_cast<size_t>(LayersOfModel(config)))
    return InvalidArgument(fmt::format("no_rope_layers: got {}, the model has {} layers",
                                       config.rope_layers.size(), LayersOfModel(config)));
  RETURN_IF_ERROR(CheckPositive("rope_theta", config.rope_theta));
  const int rotary_dim = RotaryDim(config);
  if (!(config.rotary_fraction > 0 && config.rotary_fraction <= 1) || rotary_dim < 2 ||
      rotary_dim % 2 != 0)
    return InvalidArgument(
        fmt::format("partial_rotary_factor (rotary_pct): got {}, a number above 0 up to 1 is "
                    "needed that gives an even number of a head's {} elements",
                    config.rotary_fraction, config.head_dim));
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.attention_factor)
    RETURN_IF_ERROR(CheckPositive("rope_scaling: attention_factor", *scaling.attention_factor));
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone:
      return Status::Ok();
    case RopeScaling::Kind::kYarn:
      return CheckYarn(config);
    case RopeScaling::Kind::kLongRope:
      return CheckLongRope(config);
    case RopeScaling::Kind::kLlama3:
      if (!(scaling.low_freq_factor > 0 && scaling.high_freq_factor > scaling.low_freq_factor))
        return InvalidArgument(fmt::format(
            "rope_scaling: low_freq_factor {} and high_freq_factor {}: 0 < low < high is needed",
            scaling.low_freq_factor, scaling.high_freq_factor));
      RETURN_IF_ERROR(CheckRange("rope_scaling: original_max_position_embeddings",
                                 scaling.original_max_position_embeddings, 1, kMaxPositions));
      [[fallthrough]];
    case RopeScaling::Kind::kLinear:
    case RopeScaling::Kind::kDynamic:
      if (!(std::isfinite(scaling.factor) && scaling.factor > 0))
        return InvalidArgument(fmt::format(
            "rope_scaling: factor: got {}, a positive number is needed", scaling.factor));
      return Status::Ok();
  }
  return InvalidArgument("rope_scaling: unknown kind");
}

}  // namespace

int VocabRows(const ModelConfig& config) {
  return (config.vocab_size + config.part.tp_size - 1) / config.part.tp_size;
}

int RotaryDim(const ModelConfig& config) {
  if (config.position == PositionKind::kLearnedAbsolute) return 0;
  return static_cast<int>(config.rotary_fraction * config.head_dim);
}

int LayersOfModel(const ModelConfig& config) {
  return config.part.is_whole() ? config.num_layers : config.part.num_layers;
}

bool IsSliding(const ModelConfig& config, int layer) {
  return config.sliding_window > 0 &&
         (config.sliding_layers.empty() || config.sliding_layers[static_cast<size_t>(layer)]);
}

bool HasRope(const ModelConfig& config, int layer) {
  return config.position != PositionKind::kLearnedAbsolute &&
         (config.rope_layers.empty() || config.rope_layers[static_cast<size_t>(layer)]);
}

bool HasExperts(const ModelConfig& config, int layer) {
  return config.num_experts > 0 &&
         (config.dense_layers.empty() || !config.dense_layers[static_cast<size_t>(layer)]);
}

bool HasDenseLayers(const ModelConfig& config) {
  return config.num_experts == 0 || std::ranges::count(config.dense_layers, true) > 0;
}

ops::HeldExperts ExpertsOfRank(const ModelConfig& config) {
  return ExpertsOfRank(config.num_experts, config.num_shared_experts, config.part.moe_ep_size,
                       config.part.moe_ep_rank());
}

int RouterRows(const ModelConfig& config) {
  return config.num_experts + (config.num_shared_experts > 0 ? 1 : 0);
}

int ExpertsOfToken(const ModelConfig& config) {
  return config.experts_per_token + ExpertsOfRank(config).num_shared;
}

int WindowOf(const ModelConfig& config, int layer) {
  return IsSliding(config, layer) ? config.sliding_window : 0;
}

float EmbeddingScale(const ModelConfig& config) {
  if (!config.has_root_embedding_scale) return config.embedding_scale;
  std::array<double, 1> rounded = {};  // room for every dtype
  StoreFloat(rounded.data(), config.dtype, 0, std::sqrt(static_cast<float>(config.hidden_size)));
  return LoadFloat(rounded.data(), config.dtype, 0);
}

int KvRowDim(const ModelConfig& config, DeviceKind device) {
  const bool is_padded = device == DeviceKind::kCuda && config.dtype != DType::kF32;
  return is_padded ? ops::CudaRowDim(config.head_dim) : config.head_dim;
}

DType KvDType(const ModelConfig& config) {
  return config.fp8_kv_cache ? DType::kF8E4M3 : config.dtype;
}

Status Validate(const ModelConfig& config) {
  if (config.architecture.empty()) return InvalidArgument("architecture: is missing");
  if (!std::ranges::count(std::array{DType::kF32, DType::kF16, DType::kBF16}, config.dtype))
    return InvalidArgument(fmt::format("dtype: got {}, float32, bfloat16 or float16 is needed",
                                       DTypeName(config.dtype)));
  RETURN_IF_ERROR(CheckDimensions(config));
  RETURN_IF_ERROR(CheckExperts(config));
  RETURN_IF_ERROR(CheckRope(config));
  RETURN_IF_ERROR(CheckFactors(config));
  RETURN_IF_ERROR(CheckWindows(config));
  RETURN_IF_ERROR(CheckParallel(config));
  RETURN_IF_ERROR(CheckQuantization(config));
  if (!(std::isfinite(config.norm_eps) && config.norm_eps >= 0))
    return InvalidArgument(
        fmt::format("norm_eps: got {}, a number of at least 0 is needed", config.norm_eps));
  if (config.activation == ops::ActivationKind::kNone)
    return InvalidArgument("activation: is missing");
  return Status::Ok();
}

}  // namespace inflight::model
