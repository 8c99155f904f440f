// SPDX-License-Identifier: Apache-2.0
// Rows about positions.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status_macros.h"
#include "model/families/fields.h"

namespace inflight::model {
namespace {

using artifact::Abbreviate;
using artifact::JsonFields;
using nlohmann::json;

using ScalingKind = RopeScaling::Kind;
constexpr std::pair<std::string_view, ScalingKind> kScalingKinds[] = {
    {"default", ScalingKind::kNone},
    {"linear", ScalingKind::kLinear},
    {"dynamic", ScalingKind::kDynamic},
    {"llama3", ScalingKind::kLlama3}};

// A dictionary with "rope_type" or "type", of Hugging Face or of a checkpoint.
Result<RopeScaling> ReadRopeScaling(const json& dictionary, const std::string& where) {
  if (!dictionary.is_object())
    return InvalidArgument(
        fmt::format("{}: got {}, an object is needed", where, Abbreviate(dictionary)));
  JsonFields fields(where, dictionary);
  RopeScaling scaling;
  const std::string name = fields.StringOr("rope_type", fields.StringOr("type", "default"));
  RETURN_IF_ERROR(fields.status());
  const auto* kind =
      std::ranges::find(kScalingKinds, name, &std::pair<std::string_view, ScalingKind>::first);
  if (kind == std::end(kScalingKinds))
    return Unimplemented(
        fmt::format("{}: type {} is not supported; default, linear, dynamic and llama3 are", where,
                    Abbreviate(name)));
  scaling.kind = kind->second;
  if (scaling.kind == ScalingKind::kNone) return scaling;
  if (scaling.kind != ScalingKind::kLlama3 && !fields.Has("factor"))
    fields.Fail("factor", "is missing");
  scaling.factor = fields.NumberOr("factor", 8.0);
  scaling.low_freq_factor = fields.NumberOr("low_freq_factor", 1.0);
  scaling.high_freq_factor = fields.NumberOr("high_freq_factor", 4.0);
  scaling.original_max_position_embeddings =
      static_cast<int>(fields.IntOr("original_max_position_embeddings", 8192, 1, kMaxField));
  RETURN_IF_ERROR(fields.status());
  return scaling;
}

json WriteRopeScaling(const RopeScaling& scaling) {
  if (scaling.kind == ScalingKind::kNone) return nullptr;
  json out = {{"factor", scaling.factor}};
  for (const auto& [name, kind] : kScalingKinds)
    if (kind == scaling.kind) out["type"] = name;
  if (scaling.kind == ScalingKind::kLlama3)
    out.update({{"low_freq_factor", scaling.low_freq_factor},
                {"high_freq_factor", scaling.high_freq_factor},
                {"original_max_position_embeddings", scaling.original_max_position_embeddings}});
  return out;
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
Status ReadRopeParameters(JsonFields& fields, ModelConfig& config, double* fraction = nullptr) {
  const char* const name = fields.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const json* dictionary = fields.Find(name);
  if (dictionary == nullptr) return Status::Ok();
  const std::string where = fmt::format("{}: {}", fields.where(), name);
  ASSIGN_OR_RETURN(config.rope_scaling, ReadRopeScaling(*dictionary, where));
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

Fields HuggingFacePartialRope() {
  return {
      RealOr("rope_theta", &ModelConfig::rope_theta, 10000.0),
      RealOr(kFraction, &ModelConfig::rotary_fraction, 1.0),
      {.name = "rope_parameters",
       .read =
           [](JsonFields& fields, ModelConfig& config) {
             return ReadRopeParameters(fields, config, &config.rotary_fraction);
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
    if (kind != "rope_gpt_neox" && kind != "rope_gptj")
      return Unimplemented(
          fmt::format("{}: position_embedding_type: got {}, only rope_gpt_neox or rope_gptj is "
                      "supported for {}",
                      fields.where(), kind, config.architecture));
    config.position = kind == "rope_gptj" ? PositionKind::kRopeGptj : PositionKind::kRopeNeox;
    return Status::Ok();
  };
  const auto write_style = [](const ModelConfig& config, json& out) {
    out["position_embedding_type"] =
        config.position == PositionKind::kRopeGptj ? "rope_gptj" : "rope_gpt_neox";
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
