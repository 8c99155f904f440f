// SPDX-License-Identifier: Apache-2.0
#include "model/families/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status_macros.h"

namespace inflight::model {
namespace {

using artifact::Abbreviate;
using artifact::JsonFields;
using nlohmann::json;

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
  if (names == ActivationNames::kCheckpointOfExperts && name == "swiglu")
    return ActivationKind::kSilu;
  const auto* row = std::ranges::find(kActivations, name, &ActivationName::name);
  if (row == std::end(kActivations)) return ActivationKind::kNone;
  return names == ActivationNames::kHuggingFace ? row->hugging_face : row->checkpoint;
}

std::string_view CheckpointName(ActivationKind kind) {
  return std::ranges::find(kActivations, kind, &ActivationName::checkpoint)->name;
}

// A number of experts above 0, of Hugging Face's files.
Field NoExperts(std::string_view name) {
  return {.name = name,
          .read =
              [=](JsonFields& fields, ModelConfig&) {
                if (fields.IntOr(name, 0, 0, kMaxField) > 0)
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
                if (moe.IntOr("num_experts", 0, 0, kMaxField) > 0)
                  return Refuse(fields, name, "models with experts are not supported");
                return moe.status();
              },
          .write = {}};
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

// Rows behind the layers' number count up to it.
int64_t MaxOf(int ModelConfig::*to) {
  return to == &ModelConfig::num_layers ? int64_t{kMaxLayers} : kMaxField;
}

}  // namespace

Status Refuse(const JsonFields& fields, std::string_view name, std::string_view why) {
  const json* value = fields.Find(name);
  return Unimplemented(fmt::format("{}: {}: got {}, {}", fields.where(), name,
                                   value == nullptr ? "null" : Abbreviate(*value), why));
}

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
                       config.*to = static_cast<int>(fields.Int(name, 1, MaxOf(to)));
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
                           static_cast<int>(fields.IntOr(name, fallback(config), 1, MaxOf(to)));
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

Field SoftCap(std::string_view name, float ModelConfig::*to, double fallback) {
  return {.name = name,
          .read =
              [=](JsonFields& fields, ModelConfig& config) {
                config.*to =
                    static_cast<float>(fields.NumberOr(name, fields.IsNull(name) ? 0 : fallback));
                return fields.status();
              },
          .write = [=](const ModelConfig& config,
                       json& out) { out[name] = config.*to == 0 ? json() : json(config.*to); }};
}

Field Inverse(std::string_view name, float ModelConfig::*to) {
  return {.name = name,
          .read =
              [=](JsonFields& fields, ModelConfig& config) {
                const double value = fields.NumberOr(name, 1);
                if (!(value > 0))
                  fields.Fail(name, fmt::format("got {}, a number above 0 is needed", value));
                config.*to = static_cast<float>(1 / value);
                return fields.status();
              },
          .write = {}};
}

Field AttentionMultiplier(double fallback) {
  constexpr const char* kName = "attention_multiplier";
  return {.name = kName,
          .read =
              [=](JsonFields& fields, ModelConfig& config) {
                config.attention_multiplier.reset();
                const double value = fields.NumberOr(kName, fallback);
                if (fields.Has(kName) || fallback != 0)
                  config.attention_multiplier = static_cast<float>(value);
                return fields.status();
              },
          .write =
              [=](const ModelConfig& config, json& out) {
                if (config.attention_multiplier) out[kName] = *config.attention_multiplier;
              }};
}

Field QueryPreAttnScalar(int64_t fallback) {
  constexpr const char* kName = "query_pre_attn_scalar";
  return {.name = kName,
          .read =
              [=](JsonFields& fields, ModelConfig& config) {
                const int64_t scalar = fields.IntOr(kName, fallback, 1, kMaxField);
                config.attention_multiplier =
                    static_cast<float>(1 / std::sqrt(static_cast<double>(scalar)));
                return fields.status();
              },
          .write =
              [=](const ModelConfig& config, json& out) {
                const double multiplier = config.attention_multiplier.value_or(1);
                out[kName] = std::lround(1 / (multiplier * multiplier));
              }};
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
                static_cast<int>(is_derived ? derived : fields.IntOr(name, derived, 1, kMaxField));
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

Fields HuggingFaceRefusals() {
  return {
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
