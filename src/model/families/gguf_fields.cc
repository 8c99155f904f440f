// SPDX-License-Identifier: Apache-2.0
#include "model/families/gguf_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace inflight::model {
namespace {

using artifact::JsonFields;

// A size that must be the head's.
Field HeadSize(std::string_view name) {
  return {.name = name,
          .read =
              [=](JsonFields& fields, ModelConfig& config) {
                const int64_t size = fields.IntOr(name, config.head_dim, 1, INT32_MAX);
                if (size != config.head_dim)
                  return Unimplemented(
                      fmt::format("{}: {}: got {}, only {}, the size of a head, is "
                                  "supported",
                                  fields.where(), name, size, config.head_dim));
                return fields.status();
              },
          .write = {}};
}

Field NormEpsilon(std::string_view name) {
  Field field = RealOr(name, &ModelConfig::norm_eps, 0);
  field.read = [name, read = field.read](JsonFields& fields, ModelConfig& config) {
    if (!fields.Has(name)) fields.Fail(name, "is missing");
    return read(fields, config);
  };
  return field;
}

constexpr const char* kMagnitude = "rope.scaling.attn_factor";
constexpr const char* kBetaFast = "rope.scaling.yarn_beta_fast";
constexpr const char* kBetaSlow = "rope.scaling.yarn_beta_slow";
constexpr const char* kOriginalLength = "rope.scaling.original_context_length";

// rope.scaling.*: a factor without a type is linear. Llama 3's rule and longrope's factors stand in
// tensors, which are read after this; longrope has its length and magnitude here, maybe without a
// type.
Status ReadScaling(JsonFields& fields, ModelConfig& config) {
  using Kind = RopeScaling::Kind;
  const double factor =
      fields.NumberOr("rope.scaling.factor", fields.NumberOr("rope.scale_linear", 1.0));
  const std::string type =
      fields.StringOr("rope.scaling.type", factor == 0 || factor == 1 ? "none" : "linear");
  const auto length = static_cast<int>(fields.IntOr(kOriginalLength, 0, 0, kMaxField));
  const double magnitude = fields.NumberOr(kMagnitude, 1);
  const double beta_fast = fields.NumberOr(kBetaFast, 32);
  const double beta_slow = fields.NumberOr(kBetaSlow, 1);
  RETURN_IF_ERROR(fields.status());
  if (type == "none" || type == "longrope") {
    config.rope_scaling = {.kind = type == "none" ? Kind::kNone : Kind::kLongRope,
                           .factor = 0,
                           .original_max_position_embeddings = length,
                           .attention_factor = magnitude};
    return Status::Ok();
  }
  if (type != "linear" && type != "yarn")
    return Unimplemented(
        fmt::format("{}: rope.scaling.type: got {}, none, linear, yarn and longrope are supported",
                    fields.where(), artifact::Abbreviate(type)));
  if (magnitude != 1) return Refuse(fields, kMagnitude, "only 1 is supported but of longrope");
  if (type == "yarn")
    config.rope_scaling = {.kind = Kind::kYarn,
                           .factor = factor,
                           .original_max_position_embeddings = length,
                           .beta_fast = beta_fast,
                           .beta_slow = beta_slow};
  else if (factor != 0 && factor != 1)
    config.rope_scaling = {.kind = Kind::kLinear, .factor = factor};
  return Status::Ok();
}

}  // namespace

Fields GgufPlainFields(std::string_view epsilon) {
  return {
      Number("vocab_size", &ModelConfig::vocab_size),
      Number("block_count", &ModelConfig::num_layers),
      Number("embedding_length", &ModelConfig::hidden_size),
      Number("context_length", &ModelConfig::max_position_embeddings),
      Number("feed_forward_length", &ModelConfig::intermediate_size),
      Number("attention.head_count", &ModelConfig::num_heads),
      NumberOr("attention.head_count_kv", &ModelConfig::num_kv_heads,
               [](const ModelConfig& c) { return c.num_heads; }),
      HeadDim("attention.key_length", "embedding_length", "attention.head_count"),
      HeadSize("attention.value_length"),
      NormEpsilon(epsilon),
      Ignored("tensor_data_layout"),  // of files before all had one
      Only("expert_count", 0),
      Only("expert_used_count", 0),
  };
}

Fields GgufFields(std::string_view epsilon) {
  return Replaced(GgufPlainFields(epsilon),
                  {
                      RealOr("rope.freq_base", &ModelConfig::rope_theta, 10000.0),
                      HeadSize("rope.dimension_count"),
                      {.name = "rope.scaling.type", .read = ReadScaling, .write = {}},
                      Ignored("rope.scaling.factor"),  // read with the type
                      Ignored("rope.scale_linear"),    // an older name of it
                      Ignored(kOriginalLength),
                      Ignored(kMagnitude),
                      Ignored(kBetaFast),
                      Ignored(kBetaSlow),
                      Ignored("rope.scaling.finetuned"),
                  });
}

Field GgufWindow() {
  constexpr const char* kName = "attention.sliding_window";
  return {.name = kName,
          .read =
              [](JsonFields& fields, ModelConfig& config) {
                config.sliding_window = static_cast<int>(fields.Int(kName, 0, INT32_MAX));
                return fields.status();
              },
          .write = {}};
}

Fields GgufPatternWindows(int64_t fallback, int64_t pattern) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const auto read = [=](JsonFields& fields, ModelConfig& config) {
    const bool is_needed = fallback == 0;
    config.sliding_window = static_cast<int>(
        is_needed ? fields.Int("attention.sliding_window", 1, INT32_MAX)
                  : fields.IntOr("attention.sliding_window", fallback, 1, INT32_MAX));
    const int64_t period = fields.IntOr(kPattern, pattern, 2, INT32_MAX);
    config.sliding_layers.clear();
    for (int64_t layer = 1; layer <= config.num_layers; ++layer)
      config.sliding_layers.push_back(layer % period != 0);
    if (config.num_layers < period) config.sliding_layers.clear();  // all of them are
    return fields.status();
  };
  return {{.name = "attention.sliding_window", .read = read, .write = {}}, Ignored(kPattern)};
}

Field GgufAttentionScale(int widest_layers) {
  return {.name = "attention.scale",
          .read =
              [=](JsonFields& fields, ModelConfig& config) {
                const double width =
                    config.num_layers == widest_layers
                        ? static_cast<double>(config.hidden_size) / config.num_heads
                        : config.head_dim;
                config.attention_multiplier =
                    static_cast<float>(fields.NumberOr("attention.scale", 1 / std::sqrt(width)));
                return fields.status();
              },
          .write = {}};
}

Fields GgufExperts(bool are_renormalized) {
  const auto read = [=](JsonFields& fields, ModelConfig& config) {
    config.num_experts = static_cast<int>(fields.Int("expert_count", 1, int64_t{ops::kMaxExperts}));
    config.has_renormalized_experts = are_renormalized;
    return fields.status();
  };
  return {{.name = "expert_count", .read = read, .write = {}},
          Number("expert_used_count", &ModelConfig::experts_per_token),
          NumberOr("expert_feed_forward_length", &ModelConfig::expert_intermediate_size,
                   [](const ModelConfig& c) { return c.intermediate_size; })};
}

Field GgufYarn() {
  constexpr const char* kType = "rope.scaling.type";
  return {.name = kType,
          .read =
              [](JsonFields& fields, ModelConfig& config) {
                const std::string type = fields.StringOr(kType, "none");
                const double factor = fields.NumberOr("rope.scaling.factor", 1);
                const int64_t length =
                    fields.IntOr("rope.scaling.original_context_length", 0, 0, kMaxField);
                RETURN_IF_ERROR(fields.status());
                if (type == "none") return Status::Ok();
                if (type != "yarn") return Refuse(fields, kType, "none and yarn are supported");
                config.rope_scaling = {.kind = RopeScaling::Kind::kYarn,
                                       .factor = factor,
                                       .original_max_position_embeddings = static_cast<int>(length),
                                       .truncate = false};
                return Status::Ok();
              },
          .write = {}};
}

Field GgufSlidingRope(double fallback) {
  return {.name = "rope.freq_base_swa",
          .read =
              [=](JsonFields& fields, ModelConfig& config) {
                config.sliding_rope_theta = fields.NumberOr("rope.freq_base_swa", fallback);
                return fields.status();
              },
          .write = {}};
}

}  // namespace inflight::model
