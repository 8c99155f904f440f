// SPDX-License-Identifier: Apache-2.0
#include "builder/upstream_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "builder/quantize.h"
#include "builder/recipes.h"
#include "model/config_json.h"
#include "tensor/element.h"

namespace inflight::builder {
namespace {

using model::LinearForm;
using model::ModelConfig;
using model::QuantAlgo;
using model::WeightSlot;

// "transformer.layers.0.attention.qkv" of its ".weight", and of that "….attention".
std::string WithoutLastName(std::string_view name) {
  return std::string(name.substr(0, name.rfind('.')));
}

Status HasNoLayout(std::string_view what) {
  return Unimplemented(fmt::format(
      "upstream_layout: got true, {}: TensorRT-LLM's checkpoints have no layout of that which fits "
      "every GPU; leave --upstream-layout out, or convert with --quant-algo none",
      what));
}

std::vector<WeightSlot> QuantizedMatrices(const ModelConfig& config) {
  model::DecoderWeights unused;
  std::vector<WeightSlot> slots = model::WeightSlots(config, unused);
  std::erase_if(slots, [](const WeightSlot& slot) { return !slot.is_quantized; });
  return slots;
}

// Stems of the layers' linears that are plain.
std::vector<std::string> PlainLinears(const ModelConfig& config) {
  model::DecoderWeights unused;
  std::vector<std::string> stems;
  for (const WeightSlot& slot : model::WeightSlots(config, unused))
    if (slot.is_linear && !slot.is_quantized) stems.push_back(WithoutLastName(slot.name));
  return stems;
}

// The one scale of a linear, and the largest of its activations' ones.
struct Fp8Scales {
  float weight = 0;
  float activation = 0;
};

// None where rows differ in their scales, or activations have none.
std::optional<Fp8Scales> Fp8ScalesOf(const WeightSource& source, const std::string& matrix) {
  const auto scales = source.recipes.find(WithoutLastName(matrix) + ".per_channel_scale");
  if (scales == source.recipes.end()) return std::nullopt;
  const int64_t num_rows = scales->second.shape[0];
  std::vector<float> of_rows(static_cast<size_t>(num_rows));
  CopyRows(scales->second, 0, num_rows, DType::kF32, of_rows.data());
  Fp8Scales found{.weight = of_rows.front()};
  if (std::ranges::any_of(of_rows, [&](float scale) { return scale != found.weight; }))
    return std::nullopt;
  for (const WeightPart& part : source.recipes.at(matrix).parts) {
    const auto activation = source.packed.activation_scales.find(part.tensor->name);
    if (activation == source.packed.activation_scales.end()) return std::nullopt;
    found.activation = std::max(found.activation, activation->second);
  }
  return found;
}

Status CheckNoExperts(const std::vector<WeightSlot>& slots) {
  for (const WeightSlot& slot : slots)
    if (slot.num_experts > 0) return HasNoLayout(slot.name + ", experts in fewer bits");
  return Status::Ok();
}

Status CheckAwq(const std::vector<WeightSlot>& slots, const ModelConfig& config, int pp_size) {
  RETURN_IF_ERROR(CheckNoExperts(slots));
  for (const WeightSlot& slot : slots) {
    const LinearForm& form = slot.form;
    const char* const what = !slot.is_linear            ? "a table in fewer bits"
                             : form.dtype != DType::kI4 ? "of another form than int4"
                             : form.has_order           ? "int4 with columns in an order (desc_act)"
                             : form.has_offsets         ? "int4 with zero points"
                             : !form.has_groups()       ? "int4 with a scale per output channel"
                             : form.group_size != slots[0].form.group_size
                                 ? "groups of another size than others'"
                                 : nullptr;
    if (what != nullptr) return HasNoLayout(fmt::format("{}, {}", slot.name, what));
  }
  const std::vector<std::string> plain = PlainLinears(config);
  if (plain.empty() || pp_size == 1) return Status::Ok();
  return HasNoLayout(fmt::format("{}, plain beside int4 in {} stages", plain.front(), pp_size));
}

RankTensor FloatsOf(std::string name, const Shape& shape, std::vector<float> values) {
  return {.shard = {.name = std::move(name), .shape = shape, .rows = {}},
          .slot = {},
          .values = std::move(values)};
}

// A vector's shard, of a dtype of floats.
std::vector<float> ValuesOfShard(const WeightSource& source, const RankTensor& tensor) {
  const DType dtype = CheckpointDType(source.config, tensor.slot);
  std::vector<float> values;
  for (const RowRange& range : tensor.shard.rows) {
    std::vector<std::byte> rows(BytesOf(dtype, range.num_rows));
    CopySlotRows(source, tensor.slot, range.row, range.num_rows, rows.data());
    for (int64_t i = 0; i < range.num_rows; ++i) values.push_back(LoadFloat(rows.data(), dtype, i));
  }
  return values;
}

// A norm that a product of quantised activations reads through.
bool IsInputNorm(const ModelConfig& config, const WeightSlot& slot) {
  return slot.name.ends_with(".input_layernorm.weight") ||
         slot.name.ends_with(fmt::format(".{}.weight", config.mlp_norm_name));
}

// Scales are one row, float32. Activations of dense and proj are divided by smoothers, and what
// calibration would find is 1.
void AddSmoothQuant(const WeightSource& source, RankTensor tensor, std::vector<RankTensor>& made) {
  const std::string stem = WithoutLastName(tensor.shard.name);
  if (tensor.slot.kind == WeightSlot::Kind::kScales) {
    std::vector<float> scales = ValuesOfShard(source, tensor);
    const Shape shape{1, std::ssize(scales)};
    made.push_back(FloatsOf(tensor.shard.name, shape, std::move(scales)));
    return;
  }
  if (tensor.slot.is_quantized && (stem.ends_with(".dense") || stem.ends_with(".proj"))) {
    const int64_t width = tensor.shard.num_columns;
    made.push_back(FloatsOf(stem + ".smoother", {1, width},
                            std::vector<float>(static_cast<size_t>(width), 1.0F)));
    made.push_back(FloatsOf(WithoutLastName(stem) + std::string(kInputScale), {1}, {1}));
  }
  if (IsInputNorm(source.config, tensor.slot))
    made.push_back(FloatsOf(stem + std::string(kNormScale), {1}, {1}));
  made.push_back(std::move(tensor));
}

void AddFp8(const WeightSource& source, RankTensor tensor, std::vector<RankTensor>& made) {
  if (tensor.slot.kind != WeightSlot::Kind::kScales) {
    made.push_back(std::move(tensor));
    return;
  }
  const std::string stem = WithoutLastName(tensor.shard.name);
  const Fp8Scales scales = *Fp8ScalesOf(source, model::MatrixOfScales(tensor.slot));
  made.push_back(FloatsOf(stem + ".weights_scaling_factor", {1}, {scales.weight}));
  made.push_back(FloatsOf(stem + ".activation_scaling_factor", {1}, {scales.activation}));
}

Status AddAwq(RankTensor tensor, std::vector<RankTensor>& made) {
  tensor.has_row_pairs = tensor.slot.is_quantized;
  for (const RowRange& range : tensor.shard.rows)
    if (tensor.has_row_pairs && range.num_rows % 2 != 0)
      return HasNoLayout(
          fmt::format("{}, int4 of {} rows, an odd number", tensor.shard.name, range.num_rows));
  made.push_back(std::move(tensor));
  return Status::Ok();
}

}  // namespace

Result<UpstreamForm> UpstreamFormOf(const WeightSource& source, int pp_size) {
  const ModelConfig& config = source.config;
  const std::vector<WeightSlot> slots = QuantizedMatrices(config);
  const bool has_codes = std::ranges::any_of(
      slots, [&](const WeightSlot& slot) { return IsQuantized(source.recipes.at(slot.name)); });
  switch (config.quant_algo) {
    case QuantAlgo::kNone:
      return UpstreamForm::kAsHere;
    case QuantAlgo::kW8A16:
      if (!has_codes) return UpstreamForm::kFloats;
      RETURN_IF_ERROR(CheckNoExperts(slots));
      return UpstreamForm::kSmoothQuant;
    case QuantAlgo::kW4A16:
      if (!has_codes) return UpstreamForm::kFloats;
      return HasNoLayout("int4 weights with a scale per output channel");
    case QuantAlgo::kW8A16Gptq:
      return HasNoLayout("int8 weights in groups");
    case QuantAlgo::kW4A16Gptq:
    case QuantAlgo::kMixedPrecision:
      RETURN_IF_ERROR(CheckAwq(slots, config, pp_size));
      return UpstreamForm::kAwq;
    case QuantAlgo::kFp8PerChannelPerToken:
      break;
  }
  const bool has_scalars = std::ranges::all_of(slots, [&](const WeightSlot& slot) {
    return slot.num_experts == 0 && Fp8ScalesOf(source, slot.name).has_value();
  });
  return has_scalars ? UpstreamForm::kFp8 : UpstreamForm::kAsHere;
}

ModelConfig SlotConfigOf(UpstreamForm form, ModelConfig config) {
  if (form == UpstreamForm::kFloats) config.quant_algo = QuantAlgo::kNone;
  return config;
}

nlohmann::json UpstreamConfig(UpstreamForm form, const ModelConfig& config) {
  if (form == UpstreamForm::kAsHere) return model::ConfigToCheckpoint(config);
  ModelConfig plain = config;
  plain.quant_algo = QuantAlgo::kNone;
  nlohmann::json json = model::ConfigToCheckpoint(plain);
  nlohmann::json& quantization = json["quantization"];
  switch (form) {
    case UpstreamForm::kAsHere:
      break;
    case UpstreamForm::kFloats:
      quantization["quant_algo"] = model::QuantAlgoName(config.quant_algo);
      break;
    case UpstreamForm::kSmoothQuant:
      quantization["quant_algo"] = "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN";
      break;
    case UpstreamForm::kFp8:
      quantization["quant_algo"] = "FP8";
      break;
    case UpstreamForm::kAwq:
      quantization["quant_algo"] = "W4A16_AWQ";
      quantization["group_size"] = QuantizedMatrices(config).front().form.group_size;
      quantization["has_zero_point"] = false;
      quantization["pre_quant_scale"] = false;
      break;
  }
  const std::vector<std::string> left_out = PlainLinears(config);
  if (form != UpstreamForm::kAwq || left_out.empty()) return json;
  quantization["exclude_modules"] = {"lm_head", "*vocab_embedding", "*position_embedding",
                                     "*router"};
  for (const std::string& stem : left_out) quantization["exclude_modules"].push_back(stem);
  return json;
}

Status SetUpstreamForm(UpstreamForm form, const WeightSource& source,
                       std::vector<RankTensor>& tensors) {
  std::vector<RankTensor> made;
  for (RankTensor& tensor : tensors) {
    if (source.config.fp8_kv_cache && tensor.slot.name.ends_with(".attention.qkv.weight")) {
      const std::string attention = WithoutLastName(WithoutLastName(tensor.shard.name));
      made.push_back(FloatsOf(attention + std::string(kKvScale), {1}, {1}));
    }
    switch (form) {
      case UpstreamForm::kAsHere:
      case UpstreamForm::kFloats:
        made.push_back(std::move(tensor));
        break;
      case UpstreamForm::kSmoothQuant:
        AddSmoothQuant(source, std::move(tensor), made);
        break;
      case UpstreamForm::kAwq:
        RETURN_IF_ERROR(AddAwq(std::move(tensor), made));
        break;
      case UpstreamForm::kFp8:
        AddFp8(source, std::move(tensor), made);
        break;
    }
  }
  tensors = std::move(made);
  return Status::Ok();
}

std::vector<std::byte> RowPairsOf(std::span<const std::byte> rows, int64_t num_columns,
                                  CpuPool& pool) {
  std::vector<std::byte> pairs(rows.size());
  pool.ParallelFor(std::ssize(rows) / num_columns, [&](int64_t pair) {
    std::byte* const to = pairs.data() + pair * num_columns;
    const int64_t first = 2 * pair * num_columns;
    for (int64_t k = 0; k < num_columns; ++k)
      to[k] = static_cast<std::byte>(PackInt4(LoadInt4(rows.data(), first + k),
                                              LoadInt4(rows.data(), first + num_columns + k)));
  });
  return pairs;
}

}  // namespace inflight::builder
