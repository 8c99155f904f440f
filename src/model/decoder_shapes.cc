// SPDX-License-Identifier: Apache-2.0
// What a decoder asks of kernels, derived from its model's description.
#include <algorithm>
#include <utility>

#include "model/decoder.h"

namespace inflight::model {

bool HasFp8Activations(const ModelConfig& config) {
  return config.quant_algo == QuantAlgo::kFp8PerChannelPerToken;
}

DType ActivationDType(const ModelConfig& config, DeviceKind device) {
  if (HasFp8Activations(config)) return DType::kF8E4M3;
  if (device == DeviceKind::kCuda || config.dtype == DType::kBF16) return config.dtype;
  return DType::kF32;
}

std::vector<ops::SlidingWindow> AttentionWindows::Different(int num_layers) const {
  std::vector<ops::SlidingWindow> out;
  for (int i = 0; i < num_layers; ++i) {
    const ops::SlidingWindow window = Of(static_cast<size_t>(i));
    if (std::ranges::count(out, window) == 0) out.push_back(window);
  }
  return out;
}

AttentionWindows LayerWindows(const ModelConfig& config, const AttentionWindows& options) {
  if (config.sliding_window == 0) return options;
  AttentionWindows out = {.windows = {}, .num_sinks = options.num_sinks, .groups = options.groups};
  for (int i = 0; i < LayersOfModel(config); ++i) {
    const int own = WindowOf(config, i);
    const int asked = options.Of(static_cast<size_t>(i)).window;
    out.windows.push_back(own == 0 || asked == 0 ? std::max(own, asked) : std::min(own, asked));
  }
  return out;
}

int AttentionWindows::GroupOf(int window) const {
  int group = 0;
  for (int g = 1; g < num_groups(); ++g)
    if (window > 0 && groups[static_cast<size_t>(g)] >= window) group = g;
  return group;
}

std::vector<int> KvLayers(const ModelConfig& config, const AttentionWindows& windows) {
  const AttentionWindows of_layers = LayerWindows(config, windows);
  std::vector<int> num_layers(static_cast<size_t>(windows.num_groups()));
  for (int i = 0; i < config.num_layers; ++i) {
    const auto layer = static_cast<size_t>(config.part.first_layer + i);
    ++num_layers[static_cast<size_t>(windows.GroupOf(of_layers.Of(layer).window))];
  }
  return num_layers;
}

ops::ShapeClass KernelShape(const ModelConfig& config, const AttentionWindows& windows) {
  // FP8 in groups is widened as int8 is.
  const DType weights = HasGroupedFp8(config) ? DType::kI8 : LinearDType(config);
  return {.weight_dtype = weights,
          .dtype = config.dtype,
          .kv_dtype = KvDType(config),
          .head_dim = config.head_dim,
          .num_heads = config.num_heads,
          .num_kv_heads = config.num_kv_heads,
          .hidden_size = config.hidden_size,
          .intermediate_size = HasDenseLayers(config) ? config.intermediate_size : 0,
          .num_windows = static_cast<int>(
              LayerWindows(config, windows).Different(LayersOfModel(config)).size())};
}

size_t LinearScratchBytes(const ModelConfig& config, int64_t num_tokens) {
  const int64_t q_width = int64_t{config.num_heads} * config.head_dim;
  size_t most = 0;
  for (const LinearForm& form : FormsOf(config)) {
    for (const int64_t width :
         {int64_t{config.hidden_size}, q_width, int64_t{config.intermediate_size}})
      most = std::max(
          most, ops::LinearScratchBytes(form.dtype, num_tokens,
                                        std::max<int64_t>(width, form.columns), form.group_size));
    most =
        std::max(most, ops::LinearScratchBytes(form.dtype, num_tokens * ExpertsOfToken(config),
                                               config.expert_intermediate_size, form.group_size));
  }
  return most;
}

std::vector<ops::LinearShape> LinearShapes(const ModelConfig& config, int max_num_tokens,
                                           int max_logits) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const int64_t q_width = int64_t{config.num_heads} * config.head_dim;
  const int64_t qkv_width = q_width + int64_t{2} * config.num_kv_heads * config.head_dim;
  const DType operands = HasFp8Activations(config) ? DType::kF8E4M3 : config.dtype;
  std::vector<ops::LinearShape> shapes;
  std::vector<std::pair<int64_t, int64_t>> of_layers = {{qkv_width, hidden}, {hidden, q_width}};
  if (HasDenseLayers(config)) {
    of_layers.emplace_back(config.gated_mlp ? 2 * inner : inner, hidden);
    of_layers.emplace_back(hidden, inner);
  }
  for (const auto& [out, in] : of_layers)
    shapes.push_back({out, in, operands, config.dtype, max_num_tokens});
  if (config.num_experts > 0)
    shapes.push_back({RouterRows(config), hidden, config.dtype, DType::kF32, max_num_tokens});
  if (config.part.is_last_stage())
    shapes.push_back({VocabRows(config), hidden, config.quantize_lm_head ? operands : config.dtype,
                      DType::kF32, max_logits});
  return shapes;
}

}  // namespace inflight::model
