// SPDX-License-Identifier: Apache-2.0
#include "model/layers_at_once.h"

namespace inflight::model {
namespace {

// Whether all layers are as ops/decode_layers.h has them, and no other rank has a part of them.
bool AreKnown(const ModelConfig& config) {
  return config.norm == ops::NormKind::kRmsNorm && config.norm_placement == NormPlacement::kPre &&
         !config.parallel_residual && config.gated_mlp && config.num_experts == 0 &&
         config.position == PositionKind::kRopeNeox && config.rope_layers.empty() &&
         config.sliding_window == 0 && !config.qk_norm && !config.has_attention_sinks &&
         config.attention_softcap == 0 && !config.dense_bias && !config.mlp_bias &&
         config.part.tp_size == 1 && config.part.pp_size == 1;
}

}  // namespace

LayersAtOnce::LayersAtOnce(const Engine& engine, const ops::Rope& rope, float attention_scale)
    : config_(&engine.config),
      final_norm_(engine.weights.final_norm_weight),
      rope_(rope),
      attention_scale_(attention_scale) {
  if (!AreKnown(engine.config)) return;
  for (const LayerWeights& layer : engine.weights.layers)
    layers_.push_back({.input_norm = layer.input_norm_weight,
                       .post_norm = layer.post_norm_weight,
                       .qkv = layer.qkv,
                       .qkv_bias = layer.qkv_bias,
                       .dense = layer.dense,
                       .fc = layer.fc,
                       .gate = layer.gate,
                       .proj = layer.proj});
}

ops::DecodeLayersParams LayersAtOnce::ParamsOf(const Batch& batch, const ops::KvCacheView& kv,
                                               const DecoderWorkspace& workspace) const {
  // In place of [gate | up], whose dtype is the model's beside FP8, too.
  const TensorView inner = {workspace.gate_up.data,
                            workspace.gate_up.dtype,
                            {workspace.gate_up.shape[0], config_->intermediate_size}};
  return {.residual = workspace.residual,
          .layers = layers_,
          .final_norm = final_norm_,
          .norm_eps = config_->norm_eps,
          .delta_factor = config_->residual_multiplier,
          .activation = config_->activation,
          .num_heads = config_->num_heads,
          .attention_scale = attention_scale_,
          .rope = rope_,
          .batch = batch.paged,
          .kv = kv,
          .q = workspace.qkv,
          .attention = workspace.attention,
          .inner = inner,
          .y = workspace.final_x.empty() ? workspace.x : workspace.final_x};
}

int LayersAtOnce::MostRows(const Batch& batch, const ops::KvCacheView& kv,
                           const DecoderWorkspace& workspace, const ops::OpTable& ops,
                           Stream& stream) const {
  const ops::PagedBatch& paged = batch.paged;
  if (layers_.empty() || ops.decode_layers == nullptr ||
      paged.num_decode_rows != paged.num_tokens || batch.adapters != nullptr ||
      batch.kept != nullptr || !paged.tree_shifts.empty())
    return 0;
  return ops.most_decode_layers_rows(ParamsOf(batch, kv, workspace), stream);
}

Status LayersAtOnce::Run(const Batch& batch, const ops::KvCacheView& kv,
                         const DecoderWorkspace& workspace, const ops::OpTable& ops,
                         Stream& stream) const {
  return ops.decode_layers(ParamsOf(batch, kv, workspace), stream);
}

}  // namespace inflight::model
