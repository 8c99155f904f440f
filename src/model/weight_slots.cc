// SPDX-License-Identifier: Apache-2.0
#include "model/weight_slots.h"

#include <fmt/format.h>

#include "base/check.h"

namespace inflight::model {
namespace {

using Kind = WeightSlot::Kind;

class SlotList {
 public:
  void Matrix(std::string name, int64_t out, int64_t in, ops::Weight& weight) {
    slots_.push_back({std::move(name), {out, in}, Kind::kMatrix, &weight, nullptr});
  }
  void Table(std::string name, int64_t rows, int64_t width, ops::Weight& weight) {
    slots_.push_back({std::move(name), {rows, width}, Kind::kTable, &weight, nullptr});
  }
  void Table(std::string name, int64_t rows, int64_t width, TensorView& view) {
    slots_.push_back({std::move(name), {rows, width}, Kind::kTable, nullptr, &view});
  }
  void Vector(std::string name, int64_t width, TensorView& view) {
    slots_.push_back({std::move(name), {width}, Kind::kVector, nullptr, &view});
  }
  std::vector<WeightSlot> Take() { return std::move(slots_); }

 private:
  std::vector<WeightSlot> slots_;
};

void AddLayer(const ModelConfig& config, const std::string& prefix, LayerWeights& layer,
              SlotList& list) {
  const int64_t hidden = config.hidden_size;
  const int64_t attention = int64_t{config.num_heads} * config.head_dim;
  const int64_t qkv = attention + int64_t{2} * config.num_kv_heads * config.head_dim;
  const int64_t inner = config.intermediate_size;
  const bool has_norm_bias = config.norm == ops::NormKind::kLayerNorm;

  list.Vector(prefix + "input_layernorm.weight", hidden, layer.input_norm_weight);
  if (has_norm_bias) list.Vector(prefix + "input_layernorm.bias", hidden, layer.input_norm_bias);
  list.Matrix(prefix + "attention.qkv.weight", qkv, hidden, layer.qkv);
  if (config.attention_bias) list.Vector(prefix + "attention.qkv.bias", qkv, layer.qkv_bias);
  list.Matrix(prefix + "attention.dense.weight", hidden, attention, layer.dense);
  if (config.attention_bias) list.Vector(prefix + "attention.dense.bias", hidden, layer.dense_bias);
  list.Vector(prefix + "post_layernorm.weight", hidden, layer.post_norm_weight);
  if (has_norm_bias) list.Vector(prefix + "post_layernorm.bias", hidden, layer.post_norm_bias);
  list.Matrix(prefix + "mlp.fc.weight", inner, hidden, layer.fc);
  if (config.mlp_bias) list.Vector(prefix + "mlp.fc.bias", inner, layer.fc_bias);
  if (config.gated_mlp) {
    list.Matrix(prefix + "mlp.gate.weight", inner, hidden, layer.gate);
    if (config.mlp_bias) list.Vector(prefix + "mlp.gate.bias", inner, layer.gate_bias);
  }
  list.Matrix(prefix + "mlp.proj.weight", hidden, inner, layer.proj);
  if (config.mlp_bias) list.Vector(prefix + "mlp.proj.bias", hidden, layer.proj_bias);
}

}  // namespace

std::vector<WeightSlot> WeightSlots(const ModelConfig& config, DecoderWeights& weights) {
  SlotList list;
  const char* embedding = "transformer.vocab_embedding.weight";
  if (config.tied_embeddings)
    list.Matrix(embedding, config.vocab_size, config.hidden_size, weights.vocab_embedding);
  else
    list.Table(embedding, config.vocab_size, config.hidden_size, weights.vocab_embedding);
  if (config.position == PositionKind::kLearnedAbsolute)
    list.Table("transformer.position_embedding.weight", config.max_position_embeddings,
               config.hidden_size, weights.position_embedding);
  weights.layers.resize(static_cast<size_t>(config.num_layers));
  for (size_t i = 0; i < weights.layers.size(); ++i)
    AddLayer(config, fmt::format("transformer.layers.{}.", i), weights.layers[i], list);
  list.Vector("transformer.ln_f.weight", config.hidden_size, weights.final_norm_weight);
  if (config.norm == ops::NormKind::kLayerNorm)
    list.Vector("transformer.ln_f.bias", config.hidden_size, weights.final_norm_bias);
  if (!config.tied_embeddings)
    list.Matrix("lm_head.weight", config.vocab_size, config.hidden_size, weights.lm_head);
  return list.Take();
}

DType StoredDType(const ModelConfig& config, const WeightSlot& slot) {
  return slot.kind == Kind::kVector ? DType::kF32 : config.dtype;
}

ops::WeightLayout StoredLayout(const ModelConfig& config, const WeightSlot& slot) {
  return slot.kind == Kind::kMatrix ? ops::CpuWeightLayout(config.dtype)
                                    : ops::WeightLayout::kRowMajor;
}

uint64_t StoredBytes(const ModelConfig& config, const WeightSlot& slot) {
  if (slot.kind == Kind::kMatrix)
    return ops::WeightBytes(config.dtype, StoredLayout(config, slot), slot.shape[0], slot.shape[1]);
  return static_cast<uint64_t>(slot.shape.num_elements()) * SizeOf(StoredDType(config, slot));
}

void Bind(const ModelConfig& config, const WeightSlot& slot, const void* data) {
  const DType dtype = StoredDType(config, slot);
  if (slot.weight != nullptr) {
    *slot.weight = {.data = data,
                    .dtype = dtype,
                    .layout = StoredLayout(config, slot),
                    .out_features = slot.shape[0],
                    .in_features = slot.shape[1]};
    return;
  }
  // Views are mutable by type alone: nothing writes to an engine's weights.
  *slot.view = {const_cast<void*>(data), dtype, slot.shape};
}

}  // namespace inflight::model
