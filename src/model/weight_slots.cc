// SPDX-License-Identifier: Apache-2.0
#include "model/weight_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "base/check.h"

namespace inflight::model {
namespace {

using Kind = WeightSlot::Kind;

constexpr std::string_view kScaleSuffix = "per_channel_scale";
constexpr std::string_view kGroupScaleSuffix = "weights_scaling_factor";
constexpr std::string_view kOffsetSuffix = "zero";
constexpr std::string_view kOrderSuffix = "column_order";

class SlotList {
 public:
  explicit SlotList(const ModelConfig& config) : config_(config) {}

  // A linear that quantisation takes in.
  void Linear(const std::string& stem, int64_t out, int64_t in, ops::Weight& weight) {
    LinearMatrix(stem, out, in, weight);
    LinearScales(stem, out, in, weight);
    LinearOffsets(stem, out, in, weight);
  }
  void LinearMatrix(const std::string& stem, int64_t out, int64_t in, ops::Weight& weight) {
    const LinearForm form = FormOfStem(stem);
    Matrix(stem + ".weight", out, form.NumColumns(in), weight);
    WeightSlot& slot = slots_.back();
    slot.is_linear = true;
    slot.form = form;
    slot.num_inputs = form.columns == 0 ? 0 : in;
    slot.is_quantized = slot.form.is_quantized();
  }
  void LinearScales(const std::string& stem, int64_t out, int64_t in, ops::Weight& weight) {
    const LinearForm form = FormOfStem(stem);
    if (form.is_quantized()) AddScales(stem, out, form.NumColumns(in), form, weight);
  }
  void LinearOffsets(const std::string& stem, int64_t out, int64_t in, ops::Weight& weight) {
    const LinearForm form = FormOfStem(stem);
    const int64_t columns = form.NumColumns(in);
    if (form.has_offsets)
      OfMatrix(stem, kOffsetSuffix, {out, form.NumScales(columns)}, Kind::kOffsets, form, weight);
    if (!form.has_order) return;
    OfMatrix(stem, kOrderSuffix, {columns}, Kind::kOrder, form, weight);
    slots_.back().num_inputs = form.columns == 0 ? 0 : in;
  }
  // The embedding table or lm_head, which may have a form of its own: packed, or row-major.
  void FormedTable(std::string_view stem, int64_t rows, int64_t width, bool is_packed,
                   ops::Weight& weight) {
    const std::string name(stem);
    const LinearForm form = FormOfTable(config_, stem);
    if (is_packed)
      Matrix(name + ".weight", rows, width, weight);
    else
      Table(name + ".weight", rows, width, weight);
    slots_.back().form = form;
    slots_.back().is_quantized = form.is_quantized();
    slots_.back().is_linear = form.dtype == DType::kF8E4M3;  // quantised as the layers are
    if (!form.is_quantized()) return;
    const size_t first = slots_.size();
    AddScales(name, rows, width, form, weight);
    if (form.has_offsets)
      OfMatrix(name, kOffsetSuffix, {rows, form.NumScales(width)}, Kind::kOffsets, form, weight);
    for (size_t i = first; i < slots_.size(); ++i) slots_[i].is_of_rows = !is_packed;
  }
  void Matrix(std::string name, int64_t out, int64_t in, ops::Weight& weight) {
    slots_.push_back({std::move(name), {out, in}, Kind::kMatrix, &weight, {}});
  }
  void Table(std::string name, int64_t rows, int64_t width, ops::Weight& weight) {
    slots_.push_back({std::move(name), {rows, width}, Kind::kTable, &weight, {}});
  }
  void Table(std::string name, int64_t rows, int64_t width, TensorView& view) {
    slots_.push_back({std::move(name), {rows, width}, Kind::kTable, nullptr, &view});
  }
  void Vector(std::string name, int64_t width, TensorView& view) {
    slots_.push_back({std::move(name), {width}, Kind::kVector, nullptr, &view});
  }
  void NormWeight(std::string name, int64_t width, TensorView& view) {
    Vector(std::move(name), width, view);
    slots_.back().is_one_centered = config_.has_one_centered_norms;
  }
  void Router(std::string name, int64_t num_experts, int64_t in, ops::Weight& weight) {
    Matrix(std::move(name), num_experts, in, weight);
    slots_.back().is_router = true;
  }
  // Those from `first` on hold so many experts, the last of them shared.
  void SetExperts(size_t first, int num_experts, int num_shared) {
    for (size_t i = first; i < slots_.size(); ++i) {
      slots_[i].num_experts = num_experts;
      slots_[i].num_shared_experts = num_shared;
    }
  }
  size_t size() const { return slots_.size(); }
  // What follows is of that layer, whose names begin with `prefix`.
  void BeginLayer(int layer, std::string prefix) {
    layer_ = layer;
    first_of_layer_ = slots_.size();
    prefix_ = std::move(prefix);
  }
  void EndLayer() {
    for (size_t i = first_of_layer_; i < slots_.size(); ++i) slots_[i].layer = layer_;
    prefix_.clear();
  }
  std::vector<WeightSlot> Take() { return std::move(slots_); }

 private:
  void AddScales(const std::string& stem, int64_t out, int64_t in, const LinearForm& form,
                 ops::Weight& weight) {
    if (form.has_groups())
      OfMatrix(stem, kGroupScaleSuffix, {out, form.NumScales(in)}, Kind::kScales, form, weight);
    else
      OfMatrix(stem, kScaleSuffix, {out}, Kind::kScales, form, weight);
  }
  void OfMatrix(const std::string& stem, std::string_view suffix, const Shape& shape, Kind kind,
                const LinearForm& form, ops::Weight& weight) {
    slots_.push_back({fmt::format("{}.{}", stem, suffix), shape, kind, &weight, {}});
    slots_.back().form = form;
  }

  // Forms are those of the model's layers, of which names count a stage's own.
  LinearForm FormOfStem(const std::string& stem) const {
    if (prefix_.empty()) return FormOf(config_, stem);
    return FormOf(config_,
                  fmt::format("transformer.layers.{}.{}", config_.part.first_layer + layer_,
                              std::string_view(stem).substr(prefix_.size())));
  }

  const ModelConfig& config_;
  std::vector<WeightSlot> slots_;
  int layer_ = -1;
  size_t first_of_layer_ = 0;
  std::string prefix_;  // empty between layers
};

void AddExperts(const ModelConfig& config, const std::string& prefix, LayerWeights& layer,
                SlotList& list) {
  const int64_t hidden = config.hidden_size;
  const ops::HeldExperts held = ExpertsOfRank(config);
  const int64_t num_experts = held.size();
  const int64_t num_logits = RouterRows(config);
  const int64_t inner = config.expert_intermediate_size;
  const bool has_biases = config.has_expert_biases;
  list.Router(prefix + "mlp.router.weight", num_logits, hidden, layer.router);
  if (has_biases) list.Vector(prefix + "mlp.router.bias", num_logits, layer.router_bias);
  const size_t first = list.size();
  list.Linear(prefix + "mlp.fc", num_experts * 2 * inner, hidden, layer.fc);
  if (has_biases) list.Vector(prefix + "mlp.fc.bias", num_experts * 2 * inner, layer.fc_bias);
  list.Linear(prefix + "mlp.proj", num_experts * hidden, inner, layer.proj);
  if (has_biases) list.Vector(prefix + "mlp.proj.bias", num_experts * hidden, layer.proj_bias);
  list.SetExperts(first, held.size(), held.num_shared);
}

void AddMlp(const ModelConfig& config, const std::string& prefix, LayerWeights& layer,
            SlotList& list) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  // The two matrices of a gated layer side by side, and so their scales and their offsets: a GPU
  // multiplies by both at once.
  list.LinearMatrix(prefix + "mlp.fc", inner, hidden, layer.fc);
  if (config.gated_mlp) list.LinearMatrix(prefix + "mlp.gate", inner, hidden, layer.gate);
  list.LinearScales(prefix + "mlp.fc", inner, hidden, layer.fc);
  if (config.gated_mlp) list.LinearScales(prefix + "mlp.gate", inner, hidden, layer.gate);
  list.LinearOffsets(prefix + "mlp.fc", inner, hidden, layer.fc);
  if (config.gated_mlp) list.LinearOffsets(prefix + "mlp.gate", inner, hidden, layer.gate);
  if (config.mlp_bias) list.Vector(prefix + "mlp.fc.bias", inner, layer.fc_bias);
  if (config.gated_mlp && config.mlp_bias)
    list.Vector(prefix + "mlp.gate.bias", inner, layer.gate_bias);
  list.Linear(prefix + "mlp.proj", hidden, inner, layer.proj);
  if (config.mlp_bias) list.Vector(prefix + "mlp.proj.bias", hidden, layer.proj_bias);
}

// But for the feed-forward.
void AddLayer(const ModelConfig& config, const std::string& prefix, LayerWeights& layer,
              SlotList& list) {
  const int64_t hidden = config.hidden_size;
  const int64_t attention = int64_t{config.num_heads} * config.head_dim;
  const int64_t qkv = attention + int64_t{2} * config.num_kv_heads * config.head_dim;
  const bool has_norm_bias = config.norm == ops::NormKind::kLayerNorm;

  const bool has_norms_before = config.norm_placement != NormPlacement::kPost;
  const bool has_norms_behind = config.norm_placement != NormPlacement::kPre;

  if (has_norms_before) {
    list.NormWeight(prefix + "input_layernorm.weight", hidden, layer.input_norm_weight);
    if (has_norm_bias) list.Vector(prefix + "input_layernorm.bias", hidden, layer.input_norm_bias);
  }
  list.Linear(prefix + "attention.qkv", qkv, hidden, layer.qkv);
  if (config.qkv_bias) list.Vector(prefix + "attention.qkv.bias", qkv, layer.qkv_bias);
  if (config.qk_norm) {
    const int64_t head = config.head_dim;
    const bool is_wide = config.has_wide_qk_norm;
    list.NormWeight(prefix + "attention.q_layernorm.weight", is_wide ? attention : head,
                    layer.q_norm_weight);
    list.NormWeight(prefix + "attention.k_layernorm.weight",
                    is_wide ? head * config.num_kv_heads : head, layer.k_norm_weight);
  }
  if (config.has_attention_sinks)
    list.Vector(prefix + "attention.sinks.weight", config.num_heads, layer.sink_logits);
  list.Linear(prefix + "attention.dense", hidden, attention, layer.dense);
  if (config.dense_bias) list.Vector(prefix + "attention.dense.bias", hidden, layer.dense_bias);
  if (!config.has_shared_norm) {
    const std::string name = fmt::format("{}{}.", prefix, config.mlp_norm_name);
    list.NormWeight(name + "weight", hidden, layer.post_norm_weight);
    if (has_norm_bias) list.Vector(name + "bias", hidden, layer.post_norm_bias);
  }
  if (has_norms_before && has_norms_behind)
    list.NormWeight(prefix + "pre_feedforward_layernorm.weight", hidden,
                    layer.pre_feedforward_norm_weight);
  if (has_norms_behind)
    list.NormWeight(prefix + "post_feedforward_layernorm.weight", hidden,
                    layer.post_feedforward_norm_weight);
}

void AddMedusaHead(const ModelConfig& config, int head, MedusaHeadWeights& weights,
                   SlotList& list) {
  const std::string prefix = fmt::format("{}{}.", kMedusaHeads, head);
  weights.layers.resize(static_cast<size_t>(config.num_medusa_layers));
  weights.layer_biases.resize(weights.layers.size());
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const std::string stem = fmt::format("{}medusa_layers.{}.linear", prefix, i);
    list.Matrix(stem + ".weight", config.hidden_size, config.hidden_size, weights.layers[i]);
    list.Vector(stem + ".bias", config.hidden_size, weights.layer_biases[i]);
  }
  list.Matrix(prefix + "lm_head.weight", config.vocab_size, config.hidden_size, weights.lm_head);
}

// Of ranks as RankPart::heads_are_last says.
void AddMedusaHeads(const ModelConfig& config, DecoderWeights& weights, SlotList& list) {
  weights.medusa_heads.resize(static_cast<size_t>(config.num_medusa_heads));
  for (int head = 0; head < config.num_medusa_heads; ++head)
    AddMedusaHead(config, head, weights.medusa_heads[static_cast<size_t>(head)], list);
}

}  // namespace

std::vector<WeightSlot> WeightSlots(const ModelConfig& config, DecoderWeights& weights) {
  SlotList list(config);
  if (config.part.is_first_stage()) {
    list.FormedTable(kEmbeddingStem, VocabRows(config), config.hidden_size, config.tied_embeddings,
                     weights.vocab_embedding);
    if (config.position == PositionKind::kLearnedAbsolute)
      list.Table("transformer.position_embedding.weight", config.max_position_embeddings,
                 config.hidden_size, weights.position_embedding);
  }
  weights.layers.resize(static_cast<size_t>(config.num_layers));
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const std::string prefix = fmt::format("transformer.layers.{}.", i);
    list.BeginLayer(static_cast<int>(i), prefix);
    AddLayer(config, prefix, weights.layers[i], list);
    const bool has_experts = HasExperts(config, config.part.first_layer + static_cast<int>(i));
    (has_experts ? AddExperts : AddMlp)(config, prefix, weights.layers[i], list);
    list.EndLayer();
  }
  if (!config.part.is_last_stage()) {
    if (!config.part.heads_are_last) AddMedusaHeads(config, weights, list);
    return list.Take();
  }
  list.NormWeight("transformer.ln_f.weight", config.hidden_size, weights.final_norm_weight);
  if (config.norm == ops::NormKind::kLayerNorm)
    list.Vector("transformer.ln_f.bias", config.hidden_size, weights.final_norm_bias);
  if (!config.tied_embeddings)
    list.FormedTable(kHeadStem, VocabRows(config), config.hidden_size, /*is_packed=*/true,
                     weights.lm_head);
  if (config.head_bias) list.Vector("lm_head.bias", VocabRows(config), weights.lm_head_bias);
  AddMedusaHeads(config, weights, list);
  return list.Take();
}

bool IsOfMatrix(const WeightSlot& slot) {
  return slot.kind == Kind::kScales || slot.kind == Kind::kOffsets || slot.kind == Kind::kOrder;
}

bool HasExponents(const WeightSlot& slot) {
  return slot.kind == Kind::kScales && slot.form.dtype == DType::kF4E2M1;
}

bool HasBlocks(const WeightSlot& slot) {
  return (slot.kind == Kind::kScales || slot.kind == Kind::kOffsets) && !slot.form.blocks.empty();
}

std::string MatrixOfScales(const WeightSlot& scales) {
  CHECK(IsOfMatrix(scales));
  return scales.name.substr(0, scales.name.rfind('.') + 1) + "weight";
}

Shape FileShape(int num_experts, const Shape& shape) {
  if (num_experts == 0) return shape;
  const int64_t rows = shape[0] / num_experts;
  return shape.rank() == 1 ? Shape{num_experts, rows} : Shape{num_experts, rows, shape[1]};
}

DType StoredDType(const ModelConfig& config, const WeightSlot& slot) {
  if (slot.is_quantized) return slot.form.dtype;
  if (HasExponents(slot) || HasBlocks(slot)) return DType::kU8;
  if (slot.kind == Kind::kOrder) return DType::kI32;
  const bool is_float32 = slot.kind == Kind::kVector || IsOfMatrix(slot);
  return is_float32 ? DType::kF32 : config.dtype;
}

ops::WeightLayout StoredLayout(const ModelConfig& config, const WeightSlot& slot,
                               DeviceKind device) {
  const bool is_packed =
      slot.kind == Kind::kMatrix ||
      (IsOfMatrix(slot) && slot.shape.rank() == 2 && slot.form.has_groups() && !slot.is_of_rows);
  return is_packed && device == DeviceKind::kCpu ? ops::CpuWeightLayout(StoredDType(config, slot))
                                                 : ops::WeightLayout::kRowMajor;
}

uint64_t StoredBytes(const ModelConfig& config, const WeightSlot& slot, DeviceKind device) {
  if (slot.shape.rank() == 2)
    return ops::WeightBytes(StoredDType(config, slot), StoredLayout(config, slot, device),
                            slot.shape[0], slot.shape[1]);
  return BytesOf(StoredDType(config, slot), slot.shape.num_elements());
}

const void* DataOf(const WeightSlot& slot) {
  if (slot.view != nullptr) return slot.view->data;
  const ops::Weight& weight = *slot.weight;
  switch (slot.kind) {
    case Kind::kScales:
      if (HasBlocks(slot)) return weight.scale_blocks;
      return HasExponents(slot) ? static_cast<const void*>(weight.exponents) : weight.scales;
    case Kind::kOffsets:
      return HasBlocks(slot) ? static_cast<const void*>(weight.offset_blocks) : weight.offsets;
    case Kind::kOrder:
      return weight.order;
    default:
      return weight.data;
  }
}

void SetData(const WeightSlot& slot, const void* data) {
  if (slot.view != nullptr) {
    // Views are mutable by type alone: nothing writes to an engine's weights.
    slot.view->data = const_cast<void*>(data);
    return;
  }
  ops::Weight& weight = *slot.weight;
  switch (slot.kind) {
    case Kind::kScales:
      if (HasBlocks(slot))
        weight.scale_blocks = static_cast<const uint8_t*>(data);
      else if (HasExponents(slot))
        weight.exponents = static_cast<const uint8_t*>(data);
      else
        weight.scales = static_cast<const float*>(data);
      break;
    case Kind::kOffsets:
      if (HasBlocks(slot))
        weight.offset_blocks = static_cast<const uint8_t*>(data);
      else
        weight.offsets = static_cast<const float*>(data);
      break;
    case Kind::kOrder:
      weight.order = static_cast<const int32_t*>(data);
      break;
    default:
      weight.data = data;
  }
}

void Bind(const ModelConfig& config, const WeightSlot& slot, DeviceKind device, const void* data) {
  if (IsOfMatrix(slot)) return SetData(slot, data);
  const DType dtype = StoredDType(config, slot);
  if (slot.weight != nullptr) {
    *slot.weight = {.data = data,
                    .dtype = dtype,
                    .layout = StoredLayout(config, slot, device),
                    .out_features = slot.shape[0],
                    .in_features = slot.shape[1],
                    .num_inputs = slot.num_inputs};
    if (slot.is_quantized && slot.form.has_groups())
      slot.weight->group_size = slot.shape[1] / slot.form.NumGroups(slot.shape[1]);
    if (slot.is_quantized) slot.weight->blocks = slot.form.blocks;
    return;
  }
  *slot.view = {const_cast<void*>(data), dtype, slot.shape};
}

Status CheckOrders(std::span<const WeightSlot> slots) {
  std::map<std::string_view, const WeightSlot*> orders;
  for (const WeightSlot& slot : slots)
    if (slot.kind == Kind::kOrder) orders.emplace(slot.name, &slot);
  for (const auto& [name, slot] : orders) {
    const auto size = static_cast<size_t>(slot->shape[0]);
    const std::span order(slot->weight->order, size);
    const auto num_inputs = slot->num_inputs == 0 ? size : static_cast<size_t>(slot->num_inputs);
    std::vector<bool> is_found(num_inputs);
    size_t num_zeros = 0;
    for (const int32_t column : order) {
      if (column == ops::kNoColumn && num_zeros < size - num_inputs) {
        ++num_zeros;
        continue;
      }
      const auto at = static_cast<size_t>(column);
      const bool is_there = column >= 0 && at < num_inputs;
      if (!is_there || is_found[at])
        return InvalidArgument(
            fmt::format("{}: got column {}, which {}; each of {} once is needed", name, column,
                        is_there ? "stands there already" : "there is not", num_inputs));
      is_found[at] = true;
    }
    constexpr std::string_view kGate = ".mlp.gate.";
    const size_t gate = name.find(kGate);
    if (gate == std::string_view::npos) continue;
    const std::string fc =
        fmt::format("{}.mlp.fc.{}", name.substr(0, gate), name.substr(gate + kGate.size()));
    const auto other = orders.find(fc);
    if (other == orders.end() ||
        !std::ranges::equal(order, std::span(other->second->weight->order, size)))
      return InvalidArgument(
          fmt::format("{}: is not that of {}, with which it is multiplied", name, fc));
  }
  return Status::Ok();
}

}  // namespace inflight::model
