// SPDX-License-Identifier: Apache-2.0
#include "model/linear_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "model/config.h"
#include "model/weight_slots.h"
#include "ops/tensor_core_order.h"

namespace inflight::model {
namespace {

using NamedWidth = std::pair<std::string_view, int>;

// What the layers' linears read: their in_features, by the fields that say them.
std::vector<NamedWidth> WidthsOf(const ModelConfig& config) {
  std::vector<NamedWidth> widths = {
      {"hidden_size", config.hidden_size},
      {"num_heads * head_dim", config.num_heads * config.head_dim},
  };
  if (HasDenseLayers(config)) widths.emplace_back("intermediate_size", config.intermediate_size);
  if (config.num_experts > 0)
    widths.emplace_back("moe_intermediate_size", config.expert_intermediate_size);
  return widths;
}

// Rows of FP8 operands are read 16 bytes at a time.
Status CheckFp8(const ModelConfig& config) {
  constexpr int kRow = 16;
  if (config.dtype == DType::kF32)
    return Unimplemented(
        "dtype: got float32, with FP8 weights only bfloat16 and float16 are supported");
  for (const auto& [name, width] : WidthsOf(config))
    if (width % kRow != 0)
      return Unimplemented(fmt::format(
          "{}: got {}, with FP8 weights only multiples of {} are supported", name, width, kRow));
  return Status::Ok();
}

// The sums of the integer kernels must stay within 32 bits; two int4 share a byte.
Status CheckIntegerWidth(std::string_view name, int64_t width, DType dtype) {
  if (width < 1 || width > ops::kMaxInt8Features)
    return InvalidArgument(
        fmt::format("{} with {} weights: got {}, a number from 1 to {} is needed", name,
                    DTypeName(dtype), width, ops::kMaxInt8Features));
  if (dtype == DType::kI4 && width % 2 != 0)
    return Unimplemented(fmt::format(
        "{}: got {}, with int4 weights only even numbers are supported; use int8", name, width));
  return Status::Ok();
}

Status CheckGroupStep(std::string_view field, int group_size) {
  if (group_size >= 0 && group_size % ops::kGroupStep == 0) return Status::Ok();
  return Unimplemented(
      fmt::format("{}: got {}, only multiples of {} and -1, all columns of a row, are supported",
                  field, group_size, ops::kGroupStep));
}

// A row that is one group has whole steps, too.
Status CheckGroups(std::string_view name, int64_t width, const LinearForm& form) {
  if (!form.has_groups()) return Status::Ok();
  if (form.group_size == 0 && width % ops::kGroupStep != 0)
    return Unimplemented(fmt::format(
        "group_size: got -1 for the {} of {}, with zero points only multiples of {} are supported",
        width, name, ops::kGroupStep));
  if (form.group_size == 0 || width % form.group_size == 0) return Status::Ok();
  return Unimplemented(
      fmt::format("group_size: got {}, {} {} is no multiple of it; give one that divides it, or "
                  "store the model in another form (quant_algo)",
                  form.group_size, name, width));
}

Status CheckIntegers(const ModelConfig& config) {
  const LinearForm form = FormOf(config, {});
  if (HasGroups(config.quant_algo) && !form.has_groups())
    return Unimplemented(fmt::format(
        "group_size: got -1 without zero points, which is a scale for each row: quant_algo {}",
        form.dtype == DType::kI4 ? "W4A16" : "W8A16"));
  RETURN_IF_ERROR(CheckGroupStep("group_size", form.group_size));
  for (const auto& [name, width] : WidthsOf(config)) {
    RETURN_IF_ERROR(CheckIntegerWidth(name, width, form.dtype));
    RETURN_IF_ERROR(CheckGroups(name, width, form));
  }
  return Status::Ok();
}

// What is multiplied by the same activations at once has one form.
Status CheckPair(std::string_view stem, const ModelConfig& config) {
  constexpr std::string_view kGate = ".mlp.gate";
  if (!stem.ends_with(kGate)) return Status::Ok();
  const std::string fc = fmt::format("{}.mlp.fc", stem.substr(0, stem.size() - kGate.size()));
  if (FormOf(config, stem) == FormOf(config, fc)) return Status::Ok();
  return Unimplemented(
      fmt::format("quantized_layers: {} and {}: are of two forms, one is needed", fc, stem));
}

Status CheckGroupedFp8(std::string_view stem, const WeightSlot& slot) {
  if (slot.form.group_size == kFp8GroupSize && !slot.form.has_offsets && !slot.form.has_order &&
      slot.layer >= 0)
    return Status::Ok();
  return Unimplemented(fmt::format(
      "quantized_layers: {}: FP8 in groups is of groups of {} without zero points, of the layers' "
      "linears",
      stem, kFp8GroupSize));
}

Status CheckScaleBlocks(std::string_view stem, const WeightSlot& slot) {
  const ScaleBlocks& blocks = slot.form.blocks;
  if (blocks.empty()) return Status::Ok();
  const bool are_integers = slot.form.dtype == DType::kI8 || slot.form.dtype == DType::kI4;
  if (are_integers && slot.form.group_size > 0 && !slot.form.has_order &&
      slot.shape[1] % (int64_t{slot.form.group_size} * blocks.groups) == 0)
    return Status::Ok();
  return Unimplemented(fmt::format(
      "quantized_layers: {}: scale_blocks: got blocks of {} groups of {}, of {} columns{}; they "
      "are of int8 and int4 in groups, in their order, and divide a row's groups",
      stem, blocks.groups, slot.form.group_size, slot.shape[1],
      slot.form.has_order ? " with desc_act" : ""));
}

Status CheckMixed(const ModelConfig& config) {
  DecoderWeights unused;
  size_t num_found = 0;
  for (const WeightSlot& slot : WeightSlots(config, unused)) {
    if (!slot.is_linear && !slot.is_quantized) continue;
    const std::string stem = slot.name.substr(0, slot.name.rfind('.'));
    if (slot.is_quantized) {
      ++num_found;
      const std::string name = fmt::format("columns of {}", stem);
      if (!ops::IsInteger(slot.form.dtype) && !slot.form.is_grouped_fp8())
        return Unimplemented(fmt::format(
            "quantized_layers: {}: only int8, int4, MXFP4 and FP8 in groups are supported", stem));
      if (slot.form.is_grouped_fp8()) RETURN_IF_ERROR(CheckGroupedFp8(stem, slot));
      if (slot.form.dtype == DType::kF4E2M1 &&
          (slot.form.group_size != kMxGroupSize || slot.form.has_offsets))
        return Unimplemented(
            fmt::format("quantized_layers: {}: MXFP4 has groups of {} without zero points", stem,
                        kMxGroupSize));
      RETURN_IF_ERROR(CheckGroupStep(stem + ": group_size", slot.form.group_size));
      RETURN_IF_ERROR(CheckIntegerWidth(name, slot.shape[1], slot.form.dtype));
      RETURN_IF_ERROR(CheckGroups(name, slot.shape[1], slot.form));
      RETURN_IF_ERROR(CheckScaleBlocks(stem, slot));
      if (slot.form.has_order &&
          (slot.form.group_size == 0 || slot.num_experts > 0 || !slot.is_linear))
        return Unimplemented(fmt::format(
            "quantized_layers: {}: desc_act: got true, which only groups of columns of the layers' "
            "linears have, and not experts",
            stem));
    }
    if (config.part.is_whole() && slot.is_linear) RETURN_IF_ERROR(CheckPair(stem, config));
  }
  if (config.slot_forms.empty())
    return InvalidArgument("quantized_layers: is missing beside quant_algo MIXED_PRECISION");
  if (config.part.is_whole() && num_found != config.slot_forms.size())
    return InvalidArgument(
        fmt::format("quantized_layers: got {} linears, {} of them are the model's",
                    config.slot_forms.size(), num_found));
  return Status::Ok();
}

Status CheckHead(const ModelConfig& config) {
  if (!config.quantize_lm_head) return Status::Ok();
  if (config.quant_algo != QuantAlgo::kFp8PerChannelPerToken)
    return Unimplemented(
        "quantize_lm_head: got true, only beside quant_algo FP8_PER_CHANNEL_PER_TOKEN is it "
        "supported, and with int8 or int4 weights (quant_algo W8A16, W4A16, W8A16_GPTQ, "
        "W4A16_GPTQ), on a GPU unless lm_head is the embedding table");
  if (config.tied_embeddings)
    return Unimplemented(
        "quantize_lm_head: got true for a model whose lm_head is its embedding table, which keeps "
        "the model's dtype; leave it out");
  constexpr int kColumns = 8;  // of products of FP8
  if (config.vocab_size % kColumns != 0)
    return Unimplemented(
        fmt::format("vocab_size: got {}, with quantize_lm_head only multiples of {} are supported",
                    config.vocab_size, kColumns));
  return Status::Ok();
}

DType WidestOf(const ModelConfig& config) {
  DType dtype = config.dtype;
  for (const auto& [name, form] : config.slot_forms)
    if (form.dtype == DType::kI8 || dtype == config.dtype) dtype = form.dtype;
  return dtype;
}

// "int4 weights in groups of 128 with zero points".
std::string Describe(const LinearForm& form) {
  if (form.dtype == DType::kF4E2M1)
    return fmt::format("MXFP4 weights in groups of {}", form.group_size);
  if (form.is_grouped_fp8()) return fmt::format("FP8 weights in groups of {}", form.group_size);
  std::string text = fmt::format("{} weights", DTypeName(form.dtype));
  if (!form.has_groups()) return text + ", a scale per output channel";
  text += form.group_size == 0 ? std::string(" with a scale")
                               : fmt::format(" in groups of {}", form.group_size);
  if (form.has_offsets)
    text += form.group_size == 0 ? " and a zero point per output channel" : " with zero points";
  if (form.has_order) text += ", in activation order";
  return text;
}

}  // namespace

bool LinearForm::is_quantized() const { return ops::IsInteger(dtype) || dtype == DType::kF8E4M3; }

std::string_view QuantAlgoName(QuantAlgo algo) {
  switch (algo) {
    case QuantAlgo::kNone:
      return "";
    case QuantAlgo::kW8A16:
      return "W8A16";
    case QuantAlgo::kW4A16:
      return "W4A16";
    case QuantAlgo::kW8A16Gptq:
      return "W8A16_GPTQ";
    case QuantAlgo::kW4A16Gptq:
      return "W4A16_GPTQ";
    case QuantAlgo::kFp8PerChannelPerToken:
      return "FP8_PER_CHANNEL_PER_TOKEN";
    case QuantAlgo::kMixedPrecision:
      return "MIXED_PRECISION";
  }
  return "";
}

std::optional<QuantAlgo> QuantAlgoFromName(std::string_view name) {
  for (const QuantAlgo algo :
       {QuantAlgo::kNone, QuantAlgo::kW8A16, QuantAlgo::kW4A16, QuantAlgo::kW8A16Gptq,
        QuantAlgo::kW4A16Gptq, QuantAlgo::kFp8PerChannelPerToken, QuantAlgo::kMixedPrecision})
    if (QuantAlgoName(algo) == name) return algo;
  if (name == "W4A16_AWQ") return QuantAlgo::kW4A16Gptq;
  return std::nullopt;
}

bool HasGroups(QuantAlgo algo) {
  return algo == QuantAlgo::kW8A16Gptq || algo == QuantAlgo::kW4A16Gptq;
}

DType LinearDType(const ModelConfig& config) {
  return config.quant_algo == QuantAlgo::kMixedPrecision ? WidestOf(config)
                                                         : FormOf(config, {}).dtype;
}

LinearForm FormOf(const ModelConfig& config, std::string_view linear) {
  switch (config.quant_algo) {
    case QuantAlgo::kNone:
      break;
    case QuantAlgo::kW8A16:
      return {.dtype = DType::kI8};
    case QuantAlgo::kW4A16:
      return {.dtype = DType::kI4};
    case QuantAlgo::kW8A16Gptq:
    case QuantAlgo::kW4A16Gptq:
      return {.dtype = config.quant_algo == QuantAlgo::kW4A16Gptq ? DType::kI4 : DType::kI8,
              .group_size = config.group_size,
              .has_offsets = config.has_zero_point};
    case QuantAlgo::kFp8PerChannelPerToken:
      return {.dtype = DType::kF8E4M3};
    case QuantAlgo::kMixedPrecision:
      if (const auto found = config.slot_forms.find(linear); found != config.slot_forms.end())
        return found->second;
  }
  return {.dtype = config.dtype};
}

LinearForm FormOfTable(const ModelConfig& config, std::string_view stem) {
  if (config.quant_algo == QuantAlgo::kMixedPrecision) return FormOf(config, stem);
  if (stem == kHeadStem && config.quantize_lm_head) return FormOf(config, {});
  return {.dtype = config.dtype};
}

std::string_view StemOfHead(const ModelConfig& config) {
  return config.tied_embeddings ? kEmbeddingStem : kHeadStem;
}

bool HasQuantizedHead(const ModelConfig& config) {
  return FormOfTable(config, StemOfHead(config)).is_quantized();
}

void QuantizeHead(ModelConfig& config, bool has_integer_tables) {
  const bool has_integers =
      config.quant_algo == QuantAlgo::kMixedPrecision || ops::IsInteger(LinearDType(config));
  if (!has_integers || (config.tied_embeddings && !has_integer_tables)) {
    config.quantize_lm_head = true;
    return;
  }
  config.quantize_lm_head = false;
  LinearForm head = {.dtype = DType::kI8};
  if (config.quant_algo != QuantAlgo::kMixedPrecision) {
    head.group_size = FormOf(config, {}).group_size;
    DecoderWeights unused;
    std::map<std::string, LinearForm, std::less<>> forms;
    for (const WeightSlot& slot : WeightSlots(config, unused))
      if (slot.is_quantized) forms[slot.name.substr(0, slot.name.rfind('.'))] = slot.form;
    config.slot_forms = std::move(forms);
    config.quant_algo = QuantAlgo::kMixedPrecision;
    config.group_size = 0;
    config.has_zero_point = false;
  }
  config.slot_forms.emplace(StemOfHead(config), head);
}

bool Grants(const ModelConfig& config, const QuantizationWish& wish) {
  const auto is_one = [&](const ModelConfig& other) {
    return other.quant_algo == config.quant_algo && other.group_size == config.group_size &&
           other.slot_forms == config.slot_forms;
  };
  ModelConfig asked = config;
  asked.quant_algo = wish.algo.value_or(config.quant_algo);
  asked.group_size = wish.group_size.value_or(config.group_size);
  if (is_one(asked)) return true;
  if (!wish.quantize_lm_head || config.quant_algo != QuantAlgo::kMixedPrecision) return false;
  if (HasGroups(asked.quant_algo)) asked.group_size = wish.group_size.value_or(kDefaultGroupSize);
  QuantizeHead(asked, /*has_integer_tables=*/true);
  // What was a tied table, where ranks store it twice.
  const auto table = config.slot_forms.find(kEmbeddingStem);
  if (table != config.slot_forms.end()) asked.slot_forms.insert(*table);
  return is_one(asked);
}

std::vector<LinearForm> FormsOf(const ModelConfig& config) {
  if (config.quant_algo != QuantAlgo::kMixedPrecision) return {FormOf(config, {})};
  std::vector<LinearForm> forms;
  for (const auto& [name, form] : config.slot_forms)
    if (std::ranges::find(forms, form) == forms.end()) forms.push_back(form);
  return forms;
}

bool HasExpertsToWiden(const ModelConfig& config) {
  if (config.num_experts == 0) return false;
  for (int layer = 0; layer < LayersOfModel(config); ++layer) {
    if (!HasExperts(config, layer)) continue;
    for (const auto& [linear, width] : {std::pair{"mlp.fc", config.hidden_size},
                                        std::pair{"mlp.proj", config.expert_intermediate_size}}) {
      const LinearForm form =
          FormOf(config, fmt::format("transformer.layers.{}.{}", layer, linear));
      if (form.dtype != DType::kI8 && form.dtype != DType::kI4) continue;
      if (!ops::ExpertsTakeCodes(
              {.codes = form.dtype, .in_features = width, .group_size = form.group_size}))
        return true;
    }
  }
  return false;
}

bool HasGroupedFp8(const ModelConfig& config) {
  return std::ranges::any_of(FormsOf(config), &LinearForm::is_grouped_fp8);
}

bool HasQuantizedEmbedding(const ModelConfig& config) {
  return config.quant_algo == QuantAlgo::kMixedPrecision &&
         config.slot_forms.contains(kEmbeddingStem);
}

bool HasQuantizedTables(const ModelConfig& config) {
  return HasQuantizedEmbedding(config) ||
         (config.quant_algo == QuantAlgo::kMixedPrecision && config.slot_forms.contains(kHeadStem));
}

bool HasColumnOrder(const ModelConfig& config) {
  return std::ranges::any_of(FormsOf(config), &LinearForm::has_order);
}

bool HasScaleBlocks(const ModelConfig& config) {
  return std::ranges::any_of(FormsOf(config),
                             [](const LinearForm& form) { return !form.blocks.empty(); });
}

std::string QuantizationNote(const ModelConfig& config) {
  constexpr std::string_view kComputed =
      "the CPU rounds activations to int8, a scale per token{}; a GPU does not";
  switch (config.quant_algo) {
    case QuantAlgo::kNone:
      return {};
    case QuantAlgo::kFp8PerChannelPerToken:
      return Describe(FormOf(config, {})) + "; activations float8_e4m3fn, a scale per token";
    default:
      break;
  }
  std::string text;
  bool has_integers = false;
  bool has_groups = false;
  for (const LinearForm& form : FormsOf(config)) {
    text += Describe(form) + "; ";
    has_integers |= ops::IsInteger(form.dtype);
    has_groups |= ops::IsInteger(form.dtype) && form.has_groups();
  }
  if (!has_integers) return text + "activations are not rounded";
  text += fmt::format(fmt::runtime(kComputed), has_groups ? " and group" : "");
  return HasGroupedFp8(config) ? text + "; those of FP8 are not rounded" : text;
}

Status CheckQuantization(const ModelConfig& config) {
  RETURN_IF_ERROR(CheckHead(config));
  switch (config.quant_algo) {
    case QuantAlgo::kNone:
      return Status::Ok();
    case QuantAlgo::kW8A16:
    case QuantAlgo::kW4A16:
    case QuantAlgo::kW8A16Gptq:
    case QuantAlgo::kW4A16Gptq:
      return CheckIntegers(config);
    case QuantAlgo::kFp8PerChannelPerToken:
      return CheckFp8(config);
    case QuantAlgo::kMixedPrecision:
      return CheckMixed(config);
  }
  return Status::Ok();
}

}  // namespace inflight::model
