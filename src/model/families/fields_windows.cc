// SPDX-License-Identifier: Apache-2.0
// Rows about windows.
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
  if (config.sliding_window == 0) config.sliding_rope_theta.reset();
}

Status ReadHuggingFaceWindow(JsonFields& fields, int64_t fallback, ModelConfig& config) {
  const bool is_none = fields.IsNull("sliding_window");
  const int64_t window = fields.IntOr("sliding_window", fallback, 1, kMaxField);
  config.sliding_window = is_none ? 0 : static_cast<int>(window);
  return fields.status();
}

}  // namespace

Field HuggingFaceWindow(int64_t fallback) {
  return {
      .name = "sliding_window",
      .read = [=](JsonFields& fields,
                  ModelConfig& config) { return ReadHuggingFaceWindow(fields, fallback, config); },
      .write = {}};
}

Field HuggingFaceUsedWindow(int64_t fallback) {
  return {.name = "sliding_window",
          .read =
              [=](JsonFields& fields, ModelConfig& config) {
                if (!fields.BoolOr("use_sliding_window", false)) return fields.status();
                return ReadHuggingFaceWindow(fields, fallback, config);
              },
          .write = {}};
}

Fields HuggingFaceLayerWindows(int64_t fallback) {
  const auto read_layers = [](JsonFields& fields, ModelConfig& config) {
    constexpr int64_t kFirstWindowLayer = 28;  // the default of transformers
    const int64_t first = fields.IntOr("max_window_layers", kFirstWindowLayer, 0, kMaxField);
    RETURN_IF_ERROR(fields.status());
    if (config.sliding_window > 0)
      for (int i = 0; i < config.num_layers; ++i) config.sliding_layers.push_back(i >= first);
    RETURN_IF_ERROR(ReadLayerTypes(fields, config));
    SimplifyWindows(config);
    return Status::Ok();
  };
  return {HuggingFaceUsedWindow(fallback),
          {.name = "layer_types", .read = read_layers, .write = {}}};
}

Fields HuggingFacePatternWindows(int64_t fallback, int64_t pattern,
                                 std::string_view pattern_field) {
  const auto read_layers = [=](JsonFields& fields, ModelConfig& config) {
    const int64_t period =
        pattern_field.empty() ? pattern : fields.IntOr(pattern_field, pattern, 1, kMaxField);
    RETURN_IF_ERROR(fields.status());
    if (config.sliding_window > 0)
      for (int i = 1; i <= config.num_layers; ++i) config.sliding_layers.push_back(i % period != 0);
    RETURN_IF_ERROR(ReadLayerTypes(fields, config));
    SimplifyWindows(config);
    return Status::Ok();
  };
  return {HuggingFaceWindow(fallback), {.name = "layer_types", .read = read_layers, .write = {}}};
}

Fields CheckpointWindows() {
  const auto read_window = [](JsonFields& fields, ModelConfig& config) {
    config.sliding_window = static_cast<int>(fields.IntOr("sliding_window", 0, 1, kMaxField));
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

}  // namespace inflight::model
