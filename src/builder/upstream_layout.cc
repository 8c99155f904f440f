// SPDX-License-Identifier: Apache-2.0
#include "builder/upstream_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "builder/quantize.h"
#include "builder/recipes.h"
#include "model/config_json.h"
#include "quantized/packed_matrix.h"
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

// Names of TensorRT-LLM's modules of the layers' linears that are plain. Those of experts are one,
// but for a shared one's.
std::vector<std::string> PlainModules(const ModelConfig& config) {
  model::DecoderWeights unused;
  std::vector<std::string> modules;
  for (const WeightSlot& slot : model::WeightSlots(config, unused)) {
    if (!slot.is_linear || slot.is_quantized) continue;
    const std::string stem = WithoutLastName(slot.name);
    if (slot.num_experts == 0) {
      modules.push_back(stem);
    } else if (stem.ends_with(".fc")) {
      modules.push_back(WithoutLastName(stem));
      if (slot.num_shared_experts > 0)
        modules.push_back(WithoutLastName(modules.back()) + ".shared_expert.*");
    }
  }
  return modules;
}

// Rows of an expert in a tensor of them.
int64_t RowsOfExpert(const WeightSlot& slot) {
  return slot.shape[0] / std::max(slot.num_experts, 1);
}

// The one scale of a linear, or of each expert, and the largest of its activations' ones; of those
// of a shared expert apart.
struct Fp8Scales {
  std::vector<float> weights;
  float activation = 0;
  float shared_activation = 0;
};

// None where rows differ in their scales, or activations have none.
std::optional<Fp8Scales> Fp8ScalesOf(const WeightSource& source, const WeightSlot& matrix) {
  const auto scales = source.recipes.find(WithoutLastName(matrix.name) + ".per_channel_scale");
  if (scales == source.recipes.end()) return std::nullopt;
  const int64_t num_rows = scales->second.shape[0];
  std::vector<float> of_rows(static_cast<size_t>(num_rows));
  CopyRows(scales->second, 0, num_rows, DType::kF32, of_rows.data());
  Fp8Scales found;
  for (int64_t row = 0; row < num_rows; ++row) {
    const float scale = of_rows[static_cast<size_t>(row)];
    if (row % RowsOfExpert(matrix) == 0) found.weights.push_back(scale);
    if (scale != found.weights.back()) return std::nullopt;
  }
  const int num_own = std::max(matrix.num_experts - matrix.num_shared_experts, 1);
  for (const WeightPart& part : source.recipes.at(matrix.name).parts) {
    const auto activation = source.packed.activation_scales.find(part.tensor->name);
    if (activation == source.packed.activation_scales.end()) return std::nullopt;
    const bool is_shared = part.row >= num_own * RowsOfExpert(matrix);
    float& largest = is_shared ? found.shared_activation : found.activation;
    largest = std::max(largest, activation->second);
  }
  // A shared expert is one linear, whose scale is the last one.
  for (size_t i = static_cast<size_t>(num_own); i < found.weights.size(); ++i)
    if (found.weights[i] != found.weights.back()) return std::nullopt;
  return found;
}

// The experts of a shard, by ascending number.
std::vector<int64_t> ExpertsOf(const RankTensor& tensor) {
  const int64_t rows_of_each = RowsOfExpert(tensor.slot);
  std::vector<int64_t> experts;
  for (const RowRange& range : tensor.shard.rows)
    for (int64_t i = range.row / rows_of_each; i <= (range.row + range.num_rows - 1) / rows_of_each;
         ++i)
      if (experts.empty() || experts.back() != i) experts.push_back(i);
  return experts;
}

Status CheckNoExperts(const std::vector<WeightSlot>& slots) {
  for (const WeightSlot& slot : slots)
    if (slot.num_experts > 0) return HasNoLayout(slot.name + ", experts in int8");
  return Status::Ok();
}

// Of a layer's experts both linears, which are one module, or none.
Status CheckWholeExperts(const ModelConfig& config) {
  model::DecoderWeights unused;
  const WeightSlot* fc = nullptr;
  const std::vector<WeightSlot> slots = model::WeightSlots(config, unused);
  for (const WeightSlot& slot : slots) {
    if (!slot.is_linear || slot.num_experts == 0) continue;
    if (fc != nullptr && fc->layer == slot.layer && fc->is_quantized != slot.is_quantized)
      return HasNoLayout(fmt::format("{}, experts in fewer bits beside {}, which is plain",
                                     fc->is_quantized ? fc->name : slot.name,
                                     fc->is_quantized ? slot.name : fc->name));
    fc = &slot;
  }
  return Status::Ok();
}

// The columns that a scale of one rank stands for.
int64_t ColumnsOfScale(const WeightSlot& slot, const artifact::RankMapping& ranks) {
  if (slot.form.group_size > 0) return slot.form.group_size;
  const int64_t columns = slot.shape[1];
  const bool is_cut = slot.name.ends_with(".dense.weight") || slot.name.ends_with(".proj.weight");
  if (!is_cut) return columns;
  if (slot.num_experts == 0) return columns / ranks.tp_size;
  const int64_t of_part = columns / ranks.moe_tp_size();
  const int num_shared = slot.num_shared_experts;
  const bool is_shared_cut = num_shared > 0 && ranks.tp_size > num_shared;
  return is_shared_cut ? std::gcd(of_part, columns * num_shared / ranks.tp_size) : of_part;
}

// One size for the groups of all linears, of scales that are several times in a row where theirs
// stand for more columns: theirs where they have one, else 128 or 64, which TensorRT-LLM computes,
// or what divides them all.
Result<int64_t> GroupSizeOf(const std::vector<WeightSlot>& slots,
                            const artifact::RankMapping& ranks) {
  constexpr int64_t kComputed[] = {128, 64};
  constexpr int64_t kLeast = 16;  // of a group here
  int64_t common = 0;
  bool is_one = true;
  for (const WeightSlot& slot : slots) {
    is_one =
        is_one && slot.form.group_size > 0 && slot.form.group_size == slots.front().form.group_size;
    common = std::gcd(common, ColumnsOfScale(slot, ranks));
  }
  if (is_one) return slots.front().form.group_size;
  for (const int64_t size : kComputed)
    if (common % size == 0) return size;
  if (common % kLeast == 0) return common;
  return HasNoLayout(
      fmt::format("int4 whose scales stand for columns of which only {} divide all", common));
}

// Whether offsets of rows are found again by the file's ones, which have the model's dtype.
bool HasZeroPoints(const WeightSource& source, const WeightSlot& scales, const WeightSlot& offsets,
                   int64_t row, int64_t num_rows) {
  const auto num_groups = static_cast<size_t>(scales.shape[1]);
  const DType dtype = source.config.dtype;
  std::vector<float> of_scales(static_cast<size_t>(num_rows) * num_groups);
  std::vector<float> of_offsets(of_scales.size());
  CopySlotRows(source, scales, row, num_rows, of_scales.data());
  CopySlotRows(source, offsets, row, num_rows, of_offsets.data());
  for (size_t i = 0; i < of_scales.size(); ++i) {
    float stored = 0;
    StoreFloat(&stored, dtype, 0, of_offsets[i]);
    const std::optional<int> multiple =
        quantized::MultipleOf(LoadFloat(&stored, dtype, 0), dtype, of_scales[i], /*bits=*/4);
    if (!multiple || static_cast<float>(*multiple) * of_scales[i] != of_offsets[i]) return false;
  }
  return true;
}

Status CheckZeroPoints(const WeightSource& source) {
  constexpr int64_t kRowsAtOnce = 64;
  model::DecoderWeights unused;
  const std::vector<WeightSlot> slots = model::WeightSlots(source.config, unused);
  CpuPool pool;
  for (const WeightSlot& offsets : slots) {
    if (offsets.kind != WeightSlot::Kind::kOffsets) continue;
    const std::string matrix = model::MatrixOfScales(offsets);
    const auto scales = std::ranges::find_if(slots, [&](const WeightSlot& slot) {
      return slot.kind == WeightSlot::Kind::kScales && model::MatrixOfScales(slot) == matrix;
    });
    const int64_t num_rows = offsets.shape[0];
    std::atomic<bool> are_found = true;
    pool.ParallelFor((num_rows + kRowsAtOnce - 1) / kRowsAtOnce, [&](int64_t item) {
      const int64_t row = item * kRowsAtOnce;
      if (!HasZeroPoints(source, *scales, offsets, row, std::min(kRowsAtOnce, num_rows - row)))
        are_found = false;
    });
    if (!are_found)
      return HasNoLayout(
          fmt::format("{}, int4 with offsets that are no multiples of their scales", matrix));
  }
  return Status::Ok();
}

Result<UpstreamLayout> AwqLayoutOf(const WeightSource& source, const std::vector<WeightSlot>& slots,
                                   const artifact::RankMapping& ranks) {
  const ModelConfig& config = source.config;
  UpstreamLayout layout{.form = UpstreamForm::kAwq};
  for (const WeightSlot& slot : slots) {
    const LinearForm& form = slot.form;
    const char* const what = !slot.is_linear            ? "a table in fewer bits"
                             : form.dtype != DType::kI4 ? "of another form than int4"
                             : form.has_order           ? "int4 with columns in an order (desc_act)"
                                                        : nullptr;
    if (what != nullptr) return HasNoLayout(fmt::format("{}, {}", slot.name, what));
    layout.has_zeros = layout.has_zeros || form.has_offsets;
  }
  RETURN_IF_ERROR(CheckWholeExperts(config));
  const std::vector<std::string> plain = PlainModules(config);
  if (!plain.empty() && ranks.pp_size > 1)
    return HasNoLayout(
        fmt::format("{}, plain beside int4 in {} stages", plain.front(), ranks.pp_size));
  ASSIGN_OR_RETURN(layout.group_size, GroupSizeOf(slots, ranks));
  if (layout.has_zeros) RETURN_IF_ERROR(CheckZeroPoints(source));
  return layout;
}

Result<UpstreamLayout> Fp8LayoutOf(const WeightSource& source,
                                   const std::vector<WeightSlot>& slots) {
  const auto lacks_scalars = [&](const WeightSlot& slot) {
    return !Fp8ScalesOf(source, slot).has_value();
  };
  const auto without = std::ranges::find_if(slots, lacks_scalars);
  if (without == slots.end()) return UpstreamLayout{.form = UpstreamForm::kFp8};
  if (std::ranges::none_of(slots, [](const WeightSlot& slot) { return slot.num_experts > 0; }))
    return UpstreamLayout{};
  return HasNoLayout(fmt::format(
      "{}, FP8 without one scale for {} and for its activations in a model with experts",
      without->name, without->num_experts > 0 ? "both branches of an expert" : "all of it"));
}

RankTensor FloatsOf(std::string name, const Shape& shape, std::vector<float> values) {
  return {.shard = {.name = std::move(name), .shape = shape, .rows = {}},
          .slot = {},
          .kind = RankTensor::Kind::kValues,
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
  WeightSlot matrix = tensor.slot;
  matrix.name = model::MatrixOfScales(tensor.slot);
  const std::string stem = WithoutLastName(tensor.shard.name);
  const Fp8Scales scales = *Fp8ScalesOf(source, matrix);
  std::vector<float> weights;
  Shape shape{1};
  if (matrix.num_experts == 0 || tensor.shard.is_shared) {
    weights = {scales.weights.back()};
  } else {
    for (const int64_t expert : ExpertsOf(tensor))
      weights.push_back(scales.weights[static_cast<size_t>(expert)]);
    shape = {std::ssize(weights), 1};
  }
  made.push_back(FloatsOf(stem + ".weights_scaling_factor", shape, std::move(weights)));
  made.push_back(FloatsOf(stem + ".activation_scaling_factor", {1},
                          {tensor.shard.is_shared ? scales.shared_activation : scales.activation}));
}

// `tensor`, scales or offsets of rows of `num_columns`, in groups of the layout.
RankTensor InGroups(const UpstreamLayout& layout, RankTensor tensor, int64_t num_columns) {
  Shard& shard = tensor.shard;
  const bool has_offsets = tensor.slot.kind == WeightSlot::Kind::kOffsets;
  const int64_t num_groups = num_columns / layout.group_size;
  const bool is_of_groups =
      tensor.slot.form.has_groups() && shard.shape.rank() == 2 && shard.shape[1] == num_groups;
  tensor.kind = has_offsets    ? RankTensor::Kind::kOffsets
                : is_of_groups ? RankTensor::Kind::kRows
                               : RankTensor::Kind::kScales;
  shard.name = fmt::format("{}.{}", WithoutLastName(shard.name),
                           has_offsets ? "zero" : "weights_scaling_factor");
  shard.shape = {shard.shape[0], num_groups};
  return tensor;
}

// `columns` are those of the rank's matrices before it, by their stems.
Status AddAwq(const UpstreamLayout& layout, RankTensor tensor,
              std::map<std::string, int64_t>& columns, std::vector<RankTensor>& made) {
  const std::string stem = WithoutLastName(tensor.shard.name);
  if (tensor.slot.is_quantized) {
    for (const RowRange& range : tensor.shard.rows)
      if (range.num_rows % 2 != 0)
        return HasNoLayout(
            fmt::format("{}, int4 of {} rows, an odd number", tensor.shard.name, range.num_rows));
    tensor.kind = RankTensor::Kind::kRowPairs;
    columns[stem] = tensor.shard.width();
  } else if (IsOfMatrix(tensor.slot)) {
    const bool lacks_offsets = layout.has_zeros && !tensor.slot.form.has_offsets;
    tensor = InGroups(layout, std::move(tensor), columns.at(stem));
    made.push_back(tensor);
    if (!lacks_offsets) return Status::Ok();
    tensor.kind = RankTensor::Kind::kOffsets;
    tensor.shard.name = stem + ".zero";
  }
  made.push_back(std::move(tensor));
  return Status::Ok();
}

// Rows of scales or offsets that a shard has, each column `repeats` times.
std::vector<float> GroupValues(const WeightSource& source, const RankTensor& tensor,
                               int64_t repeats) {
  const DType dtype = CheckpointDType(source.config, tensor.slot);
  const Shard& shard = tensor.shard;
  const int64_t width = shard.width() * repeats;
  std::vector<float> values(static_cast<size_t>(shard.shape[0] * width));
  float* to = values.data();
  for (const RowRange& range : shard.rows) {
    std::vector<std::byte> rows(BytesOf(dtype, range.num_rows * shard.num_columns));
    CopySlotBlock(source, tensor.slot,
                  {.row = range.row,
                   .num_rows = range.num_rows,
                   .column = shard.column,
                   .num_columns = shard.num_columns},
                  rows.data());
    for (int64_t row = 0; row < range.num_rows; ++row)
      for (int64_t k = 0; k < shard.num_columns * repeats; ++k)
        to[row * width + k] = LoadFloat(rows.data(), dtype, row * shard.num_columns + k / repeats);
    to += shard.is_side_by_side ? shard.num_columns * repeats : range.num_rows * width;
  }
  return values;
}

}  // namespace

Result<UpstreamLayout> UpstreamLayoutOf(const WeightSource& source,
                                        const artifact::RankMapping& ranks) {
  const ModelConfig& config = source.config;
  const std::vector<WeightSlot> slots = QuantizedMatrices(config);
  const bool has_codes = std::ranges::any_of(
      slots, [&](const WeightSlot& slot) { return IsQuantized(source.recipes.at(slot.name)); });
  switch (config.quant_algo) {
    case QuantAlgo::kNone:
      return UpstreamLayout{};
    case QuantAlgo::kW8A16:
      if (!has_codes) return UpstreamLayout{.form = UpstreamForm::kFloats};
      RETURN_IF_ERROR(CheckNoExperts(slots));
      return UpstreamLayout{.form = UpstreamForm::kSmoothQuant};
    case QuantAlgo::kW4A16:
      if (!has_codes) return UpstreamLayout{.form = UpstreamForm::kFloats};
      return AwqLayoutOf(source, slots, ranks);
    case QuantAlgo::kW8A16Gptq:
      return HasNoLayout("int8 weights in groups");
    case QuantAlgo::kW4A16Gptq:
    case QuantAlgo::kMixedPrecision:
      return AwqLayoutOf(source, slots, ranks);
    case QuantAlgo::kFp8PerChannelPerToken:
      break;
  }
  return Fp8LayoutOf(source, slots);
}

ModelConfig SlotConfigOf(UpstreamForm form, ModelConfig config) {
  if (form == UpstreamForm::kFloats) config.quant_algo = QuantAlgo::kNone;
  return config;
}

nlohmann::json UpstreamConfig(const UpstreamLayout& layout, const ModelConfig& config) {
  ModelConfig plain = config;
  if (layout.form != UpstreamForm::kAsHere) plain.quant_algo = QuantAlgo::kNone;
  nlohmann::json json = model::ConfigToCheckpoint(plain);
  // Of experts the activation's name says that they are gated (layers/moe.py there).
  if (config.num_experts > 0 && json["hidden_act"] == "silu") json["hidden_act"] = "swiglu";
  if (config.num_shared_experts > 0) {
    json["moe"].erase("num_shared_experts");
    json[model::kSharedExpertWidth] =
        int64_t{config.num_shared_experts} * config.expert_intermediate_size;
  }
  nlohmann::json& quantization = json["quantization"];
  switch (layout.form) {
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
      quantization["group_size"] = layout.group_size;
      quantization["has_zero_point"] = layout.has_zeros;
      quantization["pre_quant_scale"] = false;
      break;
  }
  const std::vector<std::string> left_out = PlainModules(config);
  if (layout.form != UpstreamForm::kAwq || left_out.empty()) return json;
  quantization["exclude_modules"] = {"lm_head", "*vocab_embedding", "*position_embedding",
                                     "*router", "*shared_expert_gate"};
  for (const std::string& module : left_out) quantization["exclude_modules"].push_back(module);
  return json;
}

Status SetUpstreamLayout(const UpstreamLayout& layout, const WeightSource& source,
                         std::vector<RankTensor>& tensors) {
  std::vector<RankTensor> made;
  std::map<std::string, int64_t> columns;
  for (RankTensor& tensor : tensors) {
    if (source.config.fp8_kv_cache && tensor.slot.name.ends_with(".attention.qkv.weight")) {
      const std::string attention = WithoutLastName(WithoutLastName(tensor.shard.name));
      made.push_back(FloatsOf(attention + std::string(kKvScale), {1}, {1}));
    }
    switch (layout.form) {
      case UpstreamForm::kAsHere:
      case UpstreamForm::kFloats:
        made.push_back(std::move(tensor));
        break;
      case UpstreamForm::kSmoothQuant:
        AddSmoothQuant(source, std::move(tensor), made);
        break;
      case UpstreamForm::kAwq:
        RETURN_IF_ERROR(AddAwq(layout, std::move(tensor), columns, made));
        break;
      case UpstreamForm::kFp8:
        AddFp8(source, std::move(tensor), made);
        break;
    }
  }
  tensors = std::move(made);
  return Status::Ok();
}

artifact::TensorSpec SpecOf(const WeightSource& source, const RankTensor& tensor) {
  using enum RankTensor::Kind;
  const Shard& shard = tensor.shard;
  const Shape shape = model::FileShape(shard.num_experts, shard.shape);
  const int last = shape.rank() - 1;
  switch (tensor.kind) {
    case kRows:
      return FileSpec(shard.name, CheckpointDType(source.config, tensor.slot), shape);
    case kScales:
    case kValues:
      return {shard.name, DType::kF32, tensor.kind == kValues ? shard.shape : shape};
    case kRowPairs:
      return {shard.name, DType::kI8,
              last == 1 ? Shape{shape[0] / 2, shape[1]} : Shape{shape[0], shape[1] / 2, shape[2]}};
    case kOffsets:
      return {shard.name, source.config.dtype,
              last == 1 ? Shape{shape[1], shape[0]} : Shape{shape[0], shape[2], shape[1]}};
  }
  CHECK(false);
}

std::vector<std::byte> GroupBytes(const WeightSource& source, const RankTensor& tensor) {
  const Shard& shard = tensor.shard;
  const int64_t num_groups = shard.shape[1];
  const bool has_offsets = tensor.kind == RankTensor::Kind::kOffsets;
  std::vector<float> values(static_cast<size_t>(shard.shape[0] * num_groups));
  if (!has_offsets || tensor.slot.kind == WeightSlot::Kind::kOffsets)
    values = GroupValues(source, tensor, num_groups / shard.width());
  const DType dtype = has_offsets ? source.config.dtype : DType::kF32;
  std::vector<std::byte> bytes(BytesOf(dtype, std::ssize(values)));
  const int64_t num_rows = shard.shape[0] / std::max(shard.num_experts, 1);
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    const int64_t row = i / num_groups % num_rows;
    const int64_t expert = i / num_groups / num_rows;
    const int64_t turned = (expert * num_groups + i % num_groups) * num_rows + row;
    StoreFloat(bytes.data(), dtype, has_offsets ? turned : i, values[static_cast<size_t>(i)]);
  }
  return bytes;
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
