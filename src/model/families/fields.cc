// SPDX-License-Identifier: Apache-2.0
#include "model/families/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status_macros.h"

namespace inflight::model {
namespace {

using artifact::Abbreviate;
using artifact::JsonFields;
using nlohmann::json;

constexpr int64_t kMaxInt = INT32_MAX;

Status Refuse(const JsonFields& fields, std::string_view name, std::string_view why) {
  const json* value = fields.Find(name);
  return Unimplemented(fmt::format("{}: {}: got {}, {}", fields.where(), name,
                                   value == nullptr ? "null" : Abbreviate(*value), why));
}

template <typename Real>
Field RealField(std::string_view name, Real ModelConfig::*to, double fallback) {
  return {.name = name,
          .read =
              [=](JsonFields& fields, ModelConfig& config) {
                config.*to = static_cast<Real>(fields.NumberOr(name, fallback));
                return fields.status();
              },
          .write = [=](const ModelConfig& config, json& out) { out[name] = config.*to; }};
}

void WriteNumber(std::string_view name, int ModelConfig::*to, Field& field) {
  field.write = [=](const ModelConfig& config, json& out) { out[name] = config.*to; };
}

struct ActivationName {
  std::string_view name;
  ops::ActivationKind hugging_face;  // kNone: not one of its names
  ops::ActivationKind checkpoint;    // the same; the first name of a kind is what is written
};
using ops::ActivationKind;
constexpr ActivationName kActivations[] = {
    {"relu", ActivationKind::kRelu, ActivationKind::kRelu},
    {"silu", ActivationKind::kSilu, ActivationKind::kSilu},
    {"swish", ActivationKind::kSilu, ActivationKind::kSilu},
    {"gelu", ActivationKind::kGelu, ActivationKind::kGeluTanh},
    {"gelu_python", ActivationKind::kGelu, ActivationKind::kNone},
    {"gelu_erf", ActivationKind::kNone, ActivationKind::kGelu},  // upstream has no name for it
    {"gelu_new", ActivationKind::kGeluTanh, ActivationKind::kGeluTanh},
    {"gelu_fast", ActivationKind::kGeluTanh, ActivationKind::kGeluTanh},
    {"gelu_pytorch_tanh", ActivationKind::kGeluTanh, ActivationKind::kGeluTanh},
};

ActivationKind ActivationFromName(std::string_view name, ActivationNames names) {
  const auto* row = std::ranges::find(kActivations, name, &ActivationName::name);
  if (row == std::end(kActivations)) return ActivationKind::kNone;
  return names == ActivationNames::kHuggingFace ? row->hugging_face : row->checkpoint;
}

std::string_view CheckpointName(ActivationKind kind) {
  return std::ranges::find(kActivations, kind, &ActivationName::checkpoint)->name;
}

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
      static_cast<int>(fields.IntOr("original_max_position_embeddings", 8192, 1, kMaxInt));
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

// rope_parameters of newer files: the scaling's dictionary with the base beside it.
Status ReadRopeParameters(JsonFields& fields, ModelConfig& config) {
  const char* const name = fields.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const json* dictionary = fields.Find(name);
  if (dictionary == nullptr) return Status::Ok();
  const std::string where = fmt::format("{}: {}", fields.where(), name);
  ASSIGN_OR_RETURN(config.rope_scaling, ReadRopeScaling(*dictionary, where));
  JsonFields rope(where, *dictionary);
  for (const auto& [key, value] : dictionary->items())
    if (value.is_object()) return Refuse(rope, key, "one rope for all layers is supported");
  if (rope.NumberOr("partial_rotary_factor", 1.0) != 1.0)
    return Refuse(rope, "partial_rotary_factor", "only 1 is supported");
  config.rope_theta = rope.NumberOr("rope_theta", config.rope_theta);
  return rope.status();
}

// A number of experts above 0, of Hugging Face's files.
Field NoExperts(std::string_view name) {
  return {.name = name,
          .read =
              [=](JsonFields& fields, ModelConfig&) {
                if (fields.IntOr(name, 0, 0, kMaxInt) > 0)
                  return Refuse(fields, name, "models with experts are not supported");
                return fields.status();
              },
          .write = {}};
}

// The same in an object of a checkpoint's.
Field NoExpertsIn(std::string_view name) {
  return {.name = name,
          .read =
              [=](JsonFields& fields, ModelConfig&) {
                const json* experts = fields.FindObject(name);
                if (experts == nullptr) return fields.status();
                JsonFields moe(fmt::format("{}: {}", fields.where(), name), *experts);
                if (moe.IntOr("num_experts", 0, 0, kMaxInt) > 0)
                  return Refuse(fields, name, "models with experts are not supported");
                return moe.status();
              },
          .write = {}};
}

// layer_types: which layers have a window. Left empty where all have it or none.
Status ReadLayerTypes(JsonFields& fields, ModelConfig& config) {
  const json* types = fields.Find("layer_types");
  if (types == nullptr) return Status::Ok();
  if (!types->is_array() || types->size() != static_cast<size_t>(config.num_layers))
    fields.Fail("layer_types", fmt::format("got {}, a list of {} layers' types is needed",
                                           Abbreviate(*types), config.num_layers));
  RETURN_IF_ERROR(fields.status());
  config.sliding_layers.clear();
  for (const json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention")
      return Refuse(fields, "layer_types",
                    "only full_attention and sliding_attention are supported");
    config.sliding_layers.push_back(type == "sliding_attention");
  }
  return Status::Ok();
}

void SimplifyWindows(ModelConfig& config) {
  const auto num_sliding = std::ranges::count(config.sliding_layers, true);
  if (!config.sliding_layers.empty() && num_sliding == 0) config.sliding_window = 0;
  if (num_sliding == 0 || num_sliding == config.num_layers) config.sliding_layers.clear();
}

Status ReadHuggingFaceWindow(JsonFields& fields, int64_t fallback, ModelConfig& config) {
  const bool is_none = fields.IsNull("sliding_window");
  const int64_t window = fields.IntOr("sliding_window", fallback, 1, kMaxInt);
  config.sliding_window = is_none ? 0 : static_cast<int>(window);
  return fields.status();
}

Field NoSlidingWindow() {
  return {.name = "sliding_window",
          .read =
              [](JsonFields& fields, ModelConfig& config) {
                if (fields.Has("sliding_window") && fields.BoolOr("use_sliding_window", true))
                  return Refuse(fields, "sliding_window",
                                fmt::format("{} has none", config.architecture));
                return fields.status();
              },
          .write = {}};
}

Field OnlyFullAttention() {
  return {.name = "layer_types",
          .read =
              [](JsonFields& fields, ModelConfig&) {
                const json* types = fields.Find("layer_types");
                if (types == nullptr) return Status::Ok();
                for (const json& type : *types)
                  if (type != "full_attention")
                    return Refuse(fields, "layer_types", "only full_attention is supported");
                return Status::Ok();
              },
          .write = {}};
}

}  // namespace

Fields Replaced(const Fields& base, const Fields& rows) {
  Fields all;
  for (const Field& row : base)
    if (row.name.empty() || std::ranges::find(rows, row.name, &Field::name) == rows.end())
      all.push_back(row);
  all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

Field Number(std::string_view name, int ModelConfig::*to) {
  Field field = {.name = name,
                 .read =
                     [=](JsonFields& fields, ModelConfig& config) {
                       config.*to = static_cast<int>(fields.Int(name, 1, kMaxInt));
                       return fields.status();
                     },
                 .write = {}};
  WriteNumber(name, to, field);
  return field;
}

Field NumberOr(std::string_view name, int ModelConfig::*to, int64_t fallback) {
  return NumberOr(name, to, [=](const ModelConfig&) { return fallback; });
}

Field NumberOr(std::string_view name, int ModelConfig::*to, DefaultOf fallback) {
  Field field = {.name = name,
                 .read =
                     [=, fallback = std::move(fallback)](JsonFields& fields, ModelConfig& config) {
                       config.*to =
                           static_cast<int>(fields.IntOr(name, fallback(config), 1, kMaxInt));
                       return fields.status();
                     },
                 .write = {}};
  WriteNumber(name, to, field);
  return field;
}

Field RealOr(std::string_view name, float ModelConfig::*to, double fallback) {
  return RealField(name, to, fallback);
}

Field RealOr(std::string_view name, double ModelConfig::*to, double fallback) {
  return RealField(name, to, fallback);
}

Field FlagOr(std::string_view name, std::vector<bool ModelConfig::*> to, bool fallback) {
  bool ModelConfig::*const first = to.front();
  return {.name = name,
          .read =
              [=, to = std::move(to)](JsonFields& fields, ModelConfig& config) {
                const bool value = fields.BoolOr(name, fallback);
                for (bool ModelConfig::*const flag : to) config.*flag = value;
                return fields.status();
              },
          .write = [=](const ModelConfig& config, json& out) { out[name] = config.*first; }};
}

Field Ignored(std::string_view name) {
  return {
      .name = name, .read = [](JsonFields&, ModelConfig&) { return Status::Ok(); }, .write = {}};
}

Field Derived(int ModelConfig::*to, DefaultOf value) {
  return {.name = "",
          .read =
              [=, value = std::move(value)](JsonFields&, ModelConfig& config) {
                config.*to = static_cast<int>(value(config));
                return Status::Ok();
              },
          .write = {}};
}

Field Only(std::string_view name, const json& value) {
  return {.name = name,
          .read =
              [=](JsonFields& fields, ModelConfig&) {
                const json* found = fields.Find(name);
                if (found == nullptr || *found == value) return Status::Ok();
                return Refuse(fields, name, fmt::format("only {} is supported", Abbreviate(value)));
              },
          .write = {}};
}

Field Constant(std::string_view name, const json& value) {
  Field field = Only(name, value);
  field.write = [=](const ModelConfig&, json& out) { out[name] = value; };
  return field;
}

Field Written(std::string_view name, const json& value) {
  Field field = Ignored(name);
  field.write = [=](const ModelConfig&, json& out) { out[name] = value; };
  return field;
}

Field Unsupported(std::string_view name, std::string_view why) {
  return {.name = name,
          .read =
              [=](JsonFields& fields, ModelConfig&) {
                return fields.Has(name) ? Refuse(fields, name, why) : Status::Ok();
              },
          .write = {}};
}

Field HeadDim(std::string_view name, std::string_view hidden_field, std::string_view heads_field) {
  return {
      .name = name,
      .read =
          [=](JsonFields& fields, ModelConfig& config) {
            const bool is_derived = name.empty() || !fields.Has(name);
            if (is_derived && config.hidden_size % config.num_heads != 0)
              fields.Fail(hidden_field,
                          fmt::format("got {}, no multiple of {} {}{}", config.hidden_size,
                                      heads_field, config.num_heads,
                                      name.empty() ? std::string()
                                                   : fmt::format(", and there is no {}", name)));
            const int64_t derived = config.hidden_size / config.num_heads;
            config.head_dim =
                static_cast<int>(is_derived ? derived : fields.IntOr(name, derived, 1, kMaxInt));
            return fields.status();
          },
      .write = {}};
}

Field Activation(std::string_view name, ActivationNames names, std::string_view fallback) {
  return {.name = name,
          .read =
              [=](JsonFields& fields, ModelConfig& config) {
                const std::string activation = fields.StringOr(name, fallback);
                RETURN_IF_ERROR(fields.status());
                config.activation = ActivationFromName(activation, names);
                if (config.activation == ActivationKind::kNone)
                  return Refuse(fields, name, "relu, silu and the forms of gelu are supported");
                return Status::Ok();
              },
          .write = [=](const ModelConfig& config,
                       json& out) { out[name] = CheckpointName(config.activation); }};
}

Fields HuggingFaceRope() {
  return {
      RealOr("rope_theta", &ModelConfig::rope_theta, 10000.0),
      Only("partial_rotary_factor", 1.0),
      {.name = "rope_parameters", .read = ReadRopeParameters, .write = {}},
  };
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

Field HuggingFaceWindow(int64_t fallback) {
  return {
      .name = "sliding_window",
      .read = [=](JsonFields& fields,
                  ModelConfig& config) { return ReadHuggingFaceWindow(fields, fallback, config); },
      .write = {}};
}

Fields HuggingFaceLayerWindows(int64_t fallback) {
  const auto read_window = [=](JsonFields& fields, ModelConfig& config) {
    if (!fields.BoolOr("use_sliding_window", false)) return fields.status();
    return ReadHuggingFaceWindow(fields, fallback, config);
  };
  const auto read_layers = [](JsonFields& fields, ModelConfig& config) {
    constexpr int64_t kFirstWindowLayer = 28;  // the default of transformers
    const int64_t first = fields.IntOr("max_window_layers", kFirstWindowLayer, 0, kMaxInt);
    RETURN_IF_ERROR(fields.status());
    if (config.sliding_window > 0)
      for (int i = 0; i < config.num_layers; ++i) config.sliding_layers.push_back(i >= first);
    RETURN_IF_ERROR(ReadLayerTypes(fields, config));
    SimplifyWindows(config);
    return Status::Ok();
  };
  return {{.name = "sliding_window", .read = read_window, .write = {}},
          {.name = "layer_types", .read = read_layers, .write = {}}};
}

Fields CheckpointWindows() {
  const auto read_window = [](JsonFields& fields, ModelConfig& config) {
    config.sliding_window = static_cast<int>(fields.IntOr("sliding_window", 0, 1, kMaxInt));
    return fields.status();
  };
  const auto write_window = [](const ModelConfig& config, json& out) {
    if (config.sliding_window > 0) out["sliding_window"] = config.sliding_window;
  };
  const auto write_layers = [](const ModelConfig& config, json& out) {
    for (const bool is_sliding : config.sliding_layers)
      out["layer_types"].push_back(is_sliding ? "sliding_attention" : "full_attention");
  };
  return {{.name = "sliding_window", .read = read_window, .write = write_window},
          {.name = "layer_types", .read = ReadLayerTypes, .write = write_layers}};
}

Fields HuggingFaceRefusals() {
  return {
      Unsupported("quantization_config", "quantised models are not supported"),
      NoExperts("num_local_experts"),
      NoExperts("num_experts"),
      NoExperts("n_routed_experts"),
      NoSlidingWindow(),
      OnlyFullAttention(),
      Only("is_encoder_decoder", false),
      Only("add_cross_attention", false),
  };
}

Fields SharedCheckpointFields() {
  return {
      Number("vocab_size", &ModelConfig::vocab_size),
      Number("hidden_size", &ModelConfig::hidden_size),
      Number("num_hidden_layers", &ModelConfig::num_layers),
      Number("num_attention_heads", &ModelConfig::num_heads),
      NumberOr("num_key_value_heads", &ModelConfig::num_kv_heads,
               [](const ModelConfig& c) { return c.num_heads; }),
      NumberOr("head_size", &ModelConfig::head_dim,
               [](const ModelConfig& c) { return c.hidden_size / c.num_heads; }),
      NumberOr("intermediate_size", &ModelConfig::intermediate_size,
               [](const ModelConfig& c) { return int64_t{4} * c.hidden_size; }),
      NumberOr("max_position_embeddings", &ModelConfig::max_position_embeddings, 2048),
      RealOr("norm_epsilon", &ModelConfig::norm_eps, 1e-5),
      FlagOr("share_embedding_table", {&ModelConfig::tied_embeddings}, false),
      Activation("hidden_act", ActivationNames::kCheckpoint, "gelu"),
      Constant("qk_layernorm", false),
      Only("residual_mlp", false),
      Only("apply_query_key_layer_scaling", false),
      Only("inner_layernorm", false),
      Only("norm_before_bmm1", false),
      Only("q_scaling", 1.0),
      NoExpertsIn("moe"),
      Only("gpt_variant", "gpt2"),
      Unsupported("embedding_scale", "only null is supported"),
  };
}

}  // namespace inflight::model
