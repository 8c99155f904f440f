// SPDX-License-Identifier: Apache-2.0
// Rows about positions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/families/fields.h"
#include "model/rope.h"

namespace inflight::model {
namespace {

using artifact::Abbreviate;
using artifact::JsonFields;
using nlohmann::json;

using ScalingKind = RopeScaling::Kind;
constexpr std::pair<std::string_view, ScalingKind> kScalingKinds[] = {
    {"default", ScalingKind::kNone},    {"linear", ScalingKind::kLinear},
    {"dynamic", ScalingKind::kDynamic}, {"llama3", ScalingKind::kLlama3},
    {"yarn", ScalingKind::kYarn},       {"longrope", ScalingKind::kLongRope}};

constexpr const char* kAttentionFactor = "attention_factor";
constexpr const char* kOriginalLength = "original_max_position_embeddings";
constexpr int64_t kPhi3OriginalLength = 4096;

// What a file says beside the dictionary.
struct Beside {
  std::optional<int64_t> original_length;  // which counts before the dictionary's
  bool is_phi3 = false;                    // whose word for longrope was su, and yarn
};

// Empty where it is absent.
std::vector<double> ReadFactors(JsonFields& fields, std::string_view name) {
  std::vector<double> factors;
  const json* const list = fields.Find(name);
  if (list == nullptr) return factors;
  const auto is_number = [](const json& element) { return element.is_number(); };
  if (!list->is_array() || !std::ranges::all_of(*list, is_number))
    fields.Fail(name, fmt::format("got {}, a list of numbers is needed", Abbreviate(*list)));
  else
    for (const json& element : *list) factors.push_back(element.get<double>());
  return factors;
}

// get_mscale of modeling_rope_utils.py.
double MagnitudeOf(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void ReadYarn(JsonFields& fields, RopeScaling& scaling) {
  constexpr double kFast = 32, kSlow = 1;
  const double fast = fields.NumberOr("beta_fast", kFast);
  const double slow = fields.NumberOr("beta_slow", kSlow);
  scaling.beta_fast = fast == 0 ? kFast : fast;
  scaling.beta_slow = slow == 0 ? kSlow : slow;
  scaling.truncate = fields.BoolOr("truncate", true);
  const double mscale = fields.NumberOr("mscale", 0);
  const double mscale_all_dim = fields.NumberOr("mscale_all_dim", 0);
  if (!scaling.attention_factor && mscale != 0 && mscale_all_dim != 0)
    scaling.attention_factor =
        MagnitudeOf(scaling.factor, mscale) / MagnitudeOf(scaling.factor, mscale_all_dim);
}

// A dictionary with "rope_type" or "type", of Hugging Face or of a checkpoint.
Result<RopeScaling> ReadRopeScaling(const json& dictionary, const std::string& where,
                                    const Beside& beside = {}) {
  if (!dictionary.is_object())
    return InvalidArgument(
        fmt::format("{}: got {}, an object is needed", where, Abbreviate(dictionary)));
  JsonFields fields(where, dictionary);
  RopeScaling scaling;
  std::string name = fields.StringOr("rope_type", fields.StringOr("type", "default"));
  RETURN_IF_ERROR(fields.status());
  if (beside.is_phi3 && (name == "su" || name == "yarn")) name = "longrope";
  const auto* kind =
      std::ranges::find(kScalingKinds, name, &std::pair<std::string_view, ScalingKind>::first);
  if (kind == std::end(kScalingKinds))
    return Unimplemented(
        fmt::format("{}: type {} is not supported; default, linear, dynamic, llama3, yarn and "
                    "longrope are",
                    where, Abbreviate(name)));
  scaling.kind = kind->second;
  if (scaling.kind == ScalingKind::kNone) return scaling;
  const bool is_llama3 = scaling.kind == ScalingKind::kLlama3;
  const bool is_longrope = scaling.kind == ScalingKind::kLongRope;
  if (!is_llama3 && !is_longrope && !fields.Has("factor")) fields.Fail("factor", "is missing");
  scaling.factor = fields.NumberOr("factor", is_longrope ? 0 : 8);
  scaling.low_freq_factor = fields.NumberOr("low_freq_factor", 1.0);
  scaling.high_freq_factor = fields.NumberOr("high_freq_factor", 4.0);
  const auto length = fields.OptionalInt(kOriginalLength, 1, kMaxField);
  scaling.original_max_position_embeddings =
      static_cast<int>(beside.original_length.value_or(length.value_or(is_llama3 ? 8192 : 0)));
  if (is_longrope) {
    scaling.short_factors = ReadFactors(fields, "short_factor");
    scaling.long_factors = ReadFactors(fields, "long_factor");
  }
  const bool is_yarn = scaling.kind == ScalingKind::kYarn;
  if ((is_yarn || is_longrope) && fields.Has(kAttentionFactor))
    scaling.attention_factor = fields.NumberOr(kAttentionFactor, 1);
  if (is_yarn) ReadYarn(fields, scaling);
  RETURN_IF_ERROR(fields.status());
  return scaling;
}

// But for longrope, which upstream spells otherwise.
json WriteRopeScaling(const RopeScaling& scaling) {
  if (scaling.kind == ScalingKind::kNone || scaling.kind == ScalingKind::kLongRope) return nullptr;
  json out = {{"factor", scaling.factor}};
  for (const auto& [name, kind] : kScalingKinds)
    if (kind == scaling.kind) out["type"] = name;
  if (scaling.kind == ScalingKind::kLlama3)
    out.update({{"low_freq_factor", scaling.low_freq_factor},
                {"high_freq_factor", scaling.high_freq_factor},
                {kOriginalLength, scaling.original_max_position_embeddings}});
  if (scaling.kind != ScalingKind::kYarn) return out;
  out.update({{"beta_fast", scaling.beta_fast},
              {"beta_slow", scaling.beta_slow},
              {"truncate", scaling.truncate}});
  if (scaling.original_max_position_embeddings != 0)
    out[kOriginalLength] = scaling.original_max_position_embeddings;
  if (scaling.attention_factor) out[kAttentionFactor] = *scaling.attention_factor;
  return out;
}

// A checkpoint's longrope, as upstream's converter of Phi-3 writes it
// (NVIDIA/TensorRT-LLM/tensorrt_llm/models/phi3/config.py), and its two factors of cosines and
// sines, which are the same here.
constexpr std::string_view kLongRope = "long_rope";
constexpr const char* kShortFactors = "longrope_scaling_short_factors";
constexpr const char* kLongFactors = "longrope_scaling_long_factors";
constexpr const char* kShortMagnitude = "longrope_short_mscale";
constexpr const char* kLongMagnitude = "longrope_long_mscale";

Result<RopeScaling> ReadLongRope(JsonFields& fields) {
  RopeScaling scaling = {.kind = ScalingKind::kLongRope, .factor = 0};
  scaling.original_max_position_embeddings =
      static_cast<int>(fields.OptionalInt(kOriginalLength, 1, kMaxField).value_or(0));
  scaling.short_factors = ReadFactors(fields, kShortFactors);
  scaling.long_factors = ReadFactors(fields, kLongFactors);
  if (fields.Has(kShortMagnitude)) scaling.attention_factor = fields.NumberOr(kShortMagnitude, 1);
  RETURN_IF_ERROR(fields.status());
  const double long_magnitude = fields.NumberOr(kLongMagnitude, 1);
  if (fields.Has(kLongMagnitude) && scaling.attention_factor != long_magnitude)
    return Refuse(fields, kLongMagnitude,
                  fmt::format("only the value of {} is supported", kShortMagnitude));
  RETURN_IF_ERROR(fields.status());
  return scaling;
}

void WriteLongRope(const ModelConfig& config, json& out) {
  const RopeScaling& scaling = config.rope_scaling;
  out[kOriginalLength] = OriginalLength(config);
  out[kShortFactors] = scaling.short_factors;
  out[kLongFactors] = scaling.long_factors;
  // Written only where it is another than the one that upstream derives.
  if (!scaling.attention_factor && scaling.factor == 0) return;
  for (const char* name : {kShortMagnitude, kLongMagnitude}) out[name] = RopeMagnitude(config);
}

constexpr const char* kRopeLayers = "no_rope_layers";

// Leaves rope_layers as they are where the file has no list, and empty where all are rotated.
Status ReadRopeLayers(JsonFields& fields, ModelConfig& config) {
  if (const json* const list = fields.Find(kRopeLayers)) {
    const auto num_layers = static_cast<size_t>(config.num_layers);
    if (!list->is_array() || list->size() < num_layers)
      fields.Fail(kRopeLayers, fmt::format("got {}, a list of 0 and 1 for {} layers is needed",
                                           Abbreviate(*list), config.num_layers));
    RETURN_IF_ERROR(fields.status());
    config.rope_layers.clear();
    for (size_t i = 0; i < num_layers; ++i) config.rope_layers.push_back((*list)[i] != 0);
  }
  if (std::ranges::count(config.rope_layers, false) == 0) config.rope_layers.clear();
  return Status::Ok();
}

// Of rope_parameters with a dictionary for each kind of layer.
constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

constexpr const char* kFraction = "partial_rotary_factor";

// Leaves `theta` and `fraction` as they are where the dictionary has none; a null `fraction`: 1 is
// the only one.
Status ReadRopeTheta(const json& dictionary, const std::string& where, double* theta,
                     double* fraction = nullptr) {
  JsonFields rope(where, dictionary);
  if (fraction != nullptr)
    *fraction = rope.NumberOr(kFraction, *fraction);
  else if (rope.NumberOr(kFraction, 1.0) != 1.0)
    return Refuse(rope, kFraction, "only 1 is supported");
  *theta = rope.NumberOr("rope_theta", *theta);
  return rope.status();
}

// rope_parameters of newer files: the scaling's dictionary with the base beside it.
Status ReadRopeParameters(JsonFields& fields, ModelConfig& config, double* fraction = nullptr,
                          bool is_phi3 = false) {
  const char* const name = fields.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const json* dictionary = fields.Find(name);
  if (dictionary == nullptr) return Status::Ok();
  const std::string where = fmt::format("{}: {}", fields.where(), name);
  Beside beside = {.original_length = fields.OptionalInt(kOriginalLength, 1, kMaxField),
                   .is_phi3 = is_phi3};
  RETURN_IF_ERROR(fields.status());
  if (is_phi3 && !beside.original_length) beside.original_length = kPhi3OriginalLength;
  ASSIGN_OR_RETURN(config.rope_scaling, ReadRopeScaling(*dictionary, where, beside));
  JsonFields rope(where, *dictionary);
  for (const auto& [key, value] : dictionary->items())
    if (value.is_object()) return Refuse(rope, key, "one rope for all layers is supported");
  return ReadRopeTheta(*dictionary, where, &config.rope_theta, fraction);
}

}  // namespace

Fields HuggingFaceRope(double theta) {
  return {
      RealOr("rope_theta", &ModelConfig::rope_theta, theta),
      Only(kFraction, 1.0),
      {.name = "rope_parameters",
       .read = [](JsonFields& fields,
                  ModelConfig& config) { return ReadRopeParameters(fields, config); },
       .write = {}},
  };
}

Fields HuggingFacePartialRope(const PartialRope& form) {
  return {
      RealOr(form.theta_field, &ModelConfig::rope_theta, 10000.0),
      RealOr(form.fraction_field, &ModelConfig::rotary_fraction, form.fraction),
      {.name = "rope_parameters",
       .read =
           [is_phi3 = form.is_phi3](JsonFields& fields, ModelConfig& config) {
             return ReadRopeParameters(fields, config, &config.rotary_fraction, is_phi3);
           },
       .write = {}},
  };
}

Fields HuggingFaceLayerRopes(double theta, double sliding_theta) {
  const auto read = [=](JsonFields& fields, ModelConfig& config) {
    config.sliding_rope_theta = fields.NumberOr("rope_local_base_freq", sliding_theta);
    const char* const name = fields.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
    const json* const both = fields.Find(name);
    if (both == nullptr) return fields.status();
    const std::string where = fmt::format("{}: {}", fields.where(), name);
    if (!both->is_object() || !(both->contains(kFull) || both->contains(kSliding)))
      return ReadRopeParameters(fields, config);
    JsonFields ropes(where, *both);
    if (const json* const full = ropes.FindObject(kFull)) {
      const std::string at = fmt::format("{}: {}", where, kFull);
      ASSIGN_OR_RETURN(config.rope_scaling, ReadRopeScaling(*full, at));
      RETURN_IF_ERROR(ReadRopeTheta(*full, at, &config.rope_theta));
    }
    if (const json* const sliding = ropes.FindObject(kSliding)) {
      const std::string at = fmt::format("{}: {}", where, kSliding);
      ASSIGN_OR_RETURN(const RopeScaling scaling, ReadRopeScaling(*sliding, at));
      if (scaling.kind != ScalingKind::kNone)
        return Unimplemented(at + ": rope_type: only default is supported for these layers");
      RETURN_IF_ERROR(ReadRopeTheta(*sliding, at, &*config.sliding_rope_theta));
    }
    return ropes.status();
  };
  return {
      RealOr("rope_theta", &ModelConfig::rope_theta, theta),
      Only("partial_rotary_factor", 1.0),
      {.name = "rope_parameters", .read = read, .write = {}},
  };
}

Field RotaryDimension(std::string_view name, int64_t fallback) {
  return {.name = name,
          .read =
              [=](JsonFields& fields, ModelConfig& config) {
                const int64_t dim = fields.IntOr(name, fallback == 0 ? config.head_dim : fallback,
                                                 1, config.head_dim);
                const double size = config.head_dim;
                // Such that RotaryDim is that number.
                config.rotary_fraction = static_cast<double>(dim) / size;
                if (static_cast<int64_t>(config.rotary_fraction * size) < dim)
                  config.rotary_fraction = std::nextafter(config.rotary_fraction, 1.0);
                return fields.status();
              },
          .write = [=](const ModelConfig& config,
                       json& out) { out[std::string(name)] = RotaryDim(config); }};
}

Fields HuggingFaceRopeLayers(int64_t interval) {
  const auto read = [=](JsonFields& fields, ModelConfig& config) {
    const int64_t period = fields.IntOr("no_rope_layer_interval", interval, 1, kMaxField);
    RETURN_IF_ERROR(fields.status());
    config.rope_layers.clear();
    for (int i = 1; i <= config.num_layers; ++i) config.rope_layers.push_back(i % period != 0);
    return ReadRopeLayers(fields, config);
  };
  return {{.name = kRopeLayers, .read = read, .write = {}}};
}

Field CheckpointRopeLayers() {
  return {.name = kRopeLayers,
          .read =
              [](JsonFields& fields, ModelConfig& config) {
                config.rope_layers.clear();
                return ReadRopeLayers(fields, config);
              },
          .write =
              [](const ModelConfig& config, json& out) {
                for (const bool has_rope : config.rope_layers)
                  out[kRopeLayers].push_back(has_rope ? 1 : 0);
              }};
}

Field CheckpointSlidingRope() {
  constexpr const char* kName = "rope_local_base_freq";
  return {.name = kName,
          .read =
              [](JsonFields& fields, ModelConfig& config) {
                config.sliding_rope_theta.reset();
                if (fields.Has(kName)) config.sliding_rope_theta = fields.NumberOr(kName, 0);
                return fields.status();
              },
          .write =
              [](const ModelConfig& config, json& out) {
                if (config.sliding_rope_theta) out[kName] = *config.sliding_rope_theta;
              }};
}

Fields CheckpointRope() {
  const auto read_style = [](JsonFields& fields, ModelConfig& config) {
    const std::string kind = fields.StringOr("position_embedding_type", "rope_gpt_neox");
    RETURN_IF_ERROR(fields.status());
    if (kind != "rope_gpt_neox" && kind != "rope_gptj" && kind != kLongRope)
      return Unimplemented(
          fmt::format("{}: position_embedding_type: got {}, only rope_gpt_neox, rope_gptj or "
                      "long_rope is supported for {}",
                      fields.where(), kind, config.architecture));
    config.position = kind == "rope_gptj" ? PositionKind::kRopeGptj : PositionKind::kRopeNeox;
    if (kind != kLongRope) return Status::Ok();
    ASSIGN_OR_RETURN(config.rope_scaling, ReadLongRope(fields));
    return Status::Ok();
  };
  const auto write_style = [](const ModelConfig& config, json& out) {
    const bool is_long = config.rope_scaling.kind == ScalingKind::kLongRope;
    const bool is_gptj = config.position == PositionKind::kRopeGptj;
    out["position_embedding_type"] = is_long ? kLongRope : is_gptj ? "rope_gptj" : "rope_gpt_neox";
    if (is_long) WriteLongRope(config, out);
  };
  const auto read_scaling = [](JsonFields& fields, ModelConfig& config) {
    const json* scaling = fields.Find("rotary_scaling");
    if (scaling == nullptr) return Status::Ok();
    ASSIGN_OR_RETURN(config.rope_scaling,
                     ReadRopeScaling(*scaling, fields.where() + ": rotary_scaling"));
    return Status::Ok();
  };
  return {
      {.name = "position_embedding_type", .read = read_style, .write = write_style},
      Ignored(kOriginalLength),  // read with the type
      Ignored(kShortFactors),
      Ignored(kLongFactors),
      Ignored(kShortMagnitude),
      Ignored(kLongMagnitude),
      RealOr("rotary_base", &ModelConfig::rope_theta, 10000.0),
      RealOr("rotary_pct", &ModelConfig::rotary_fraction, 1.0),
      {.name = "rotary_scaling",
       .read = read_scaling,
       .write = [](const ModelConfig& config,
                   json& out) { out["rotary_scaling"] = WriteRopeScaling(config.rope_scaling); }},
  };
}

Field LearnedPositions() { return Constant("position_embedding_type", "learned_absolute"); }

}  // namespace inflight::model
