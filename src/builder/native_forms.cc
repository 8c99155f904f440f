// SPDX-License-Identifier: Apache-2.0
#include "builder/native_forms.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/supported.h"
#include "ops/tensor_core_order.h"
#include "quantized/wider_form.h"
#include "tensor/element.h"

namespace inflight::builder {
namespace {

using model::LinearForm;
using model::QuantAlgo;
using model::WeightSlot;
using quantized::FormKind;
using quantized::NativeForm;

// A linear whose stored weights have forms, and the kind that it will have.
struct KeptLinear {
  WeightSlot slot;
  std::vector<const NativeForm*> forms;  // of each part of its recipe
  FormKind kind;
  std::shared_ptr<const std::vector<int32_t>> order = {};  // that all of them have

  std::string stem() const { return slot.name.substr(0, slot.name.rfind('.')); }
};

// By their stems.
using KeptLinears = std::map<std::string, KeptLinear>;

bool HaveOneOrder(const KeptLinear& a, const std::shared_ptr<const std::vector<int32_t>>& b) {
  if (a.order == nullptr || b == nullptr) return a.order == b;
  return *a.order == *b;
}

// Whether scales of rows are of `dtype`, or float32 that has nothing to round.
bool AreScalesOf(const artifact::StoredTensor& scales, DType dtype) {
  if (scales.dtype != DType::kF32) return scales.dtype == dtype;
  const int64_t num_rows = scales.shape[0];
  std::vector<float> computed;
  const void* values = scales.data.data();
  if (scales.reader != nullptr) {
    computed.resize(static_cast<size_t>(num_rows));
    scales.reader->Read({.row = 0, .num_rows = num_rows}, computed.data());
    values = computed.data();
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    const auto value = LoadAs<float>(values, row);
    float rounded = 0;
    StoreFloat(&rounded, dtype, 0, value);
    if (LoadFloat(&rounded, dtype, 0) != value) return false;
  }
  return true;
}

// Scales of rows are kept in the model's dtype, but for FP8's; those of groups in float32.
bool HasExactScales(const KeptLinear& linear, DType dtype) {
  if (linear.kind.has_groups() || dtype == DType::kF32 || linear.kind.codes == DType::kF8E4M3)
    return true;
  return std::ranges::all_of(
      linear.forms, [&](const NativeForm* form) { return AreScalesOf(form->scales, dtype); });
}

// Of groups, or of blocks of them.
bool HasWhole(const WeightRecipe& recipe, int64_t num_columns) {
  return std::ranges::all_of(recipe.parts, [&](const WeightPart& part) {
    return part.column % num_columns == 0 && part.num_columns % num_columns == 0 &&
           part.stored_column % num_columns == 0;
  });
}

// The dtype that the model will have: OpenWeightSource makes float32 bfloat16 for a GPU, where
// nothing else is asked for.
DType ComputedDType(const SourceOptions& options, const WeightSource& source) {
  const DType dtype = source.config.dtype;
  const bool is_narrowed =
      dtype == DType::kF32 && !options.dtype && options.target == DeviceKind::kCuda;
  return is_narrowed ? DType::kBF16 : dtype;
}

// Scales stay in blocks where the CPU multiplies by them and nobody asks for another form.
bool KeepsBlocks(const SourceOptions& options) {
  return options.target == DeviceKind::kCpu && options.is_for_one_rank && !options.quant_algo &&
         !options.group_size;
}

std::optional<KeptLinear> KeptOf(const WeightSlot& slot, const WeightSource& source, DType dtype,
                                 bool keeps_blocks) {
  const WeightRecipe& recipe = source.recipes.at(slot.name);
  KeptLinear linear{.slot = slot, .forms = {}, .kind = {}};
  for (const WeightPart& part : recipe.parts) {
    const auto found = source.packed.native.find(part.tensor->name);
    if (found == source.packed.native.end() || part.is_transposed) return std::nullopt;
    const NativeForm& form = found->second;
    if (linear.forms.empty()) {
      linear.kind = KindOf(form);
      linear.order = form.order;
    }
    if (!keeps_blocks) linear.kind.blocks = {};
    if (!HaveOneOrder(linear, form.order)) return std::nullopt;
    const auto kind = CommonKind(linear.kind, KindOf(form), form.codes.shape[1]);
    if (!kind) return std::nullopt;
    linear.kind = *kind;
    linear.forms.push_back(&form);
  }
  const bool fits = !linear.kind.has_groups() || HasWhole(recipe, linear.kind.group_size);
  const int64_t groups_of_block = linear.kind.blocks.groups;
  if (groups_of_block > 0 && !HasWhole(recipe, linear.kind.group_size * groups_of_block))
    linear.kind.blocks = {};
  if (linear.order != nullptr && (slot.num_experts > 0 || !linear.kind.has_groups()))
    return std::nullopt;
  if (!fits || !HasExactScales(linear, dtype)) return std::nullopt;
  return linear;
}

// The two branches of a gated feed-forward are multiplied at once, in one form. Those of experts
// are one weight.
void PairBranches(KeptLinears& linears) {
  constexpr std::string_view kFc = ".mlp.fc";
  constexpr std::string_view kGate = ".mlp.gate";
  std::vector<std::string> layers;
  for (const auto& [stem, linear] : linears)
    if (linear.slot.num_experts == 0)
      for (const std::string_view end : {kFc, kGate})
        if (stem.ends_with(end)) layers.push_back(stem.substr(0, stem.size() - end.size()));
  for (const std::string& layer : layers) {
    const auto fc = linears.find(layer + std::string(kFc));
    const auto gate = linears.find(layer + std::string(kGate));
    if (fc != linears.end() && gate != linears.end()) {
      const auto kind = CommonKind(fc->second.kind, gate->second.kind, fc->second.slot.shape[1]);
      if (kind && HaveOneOrder(fc->second, gate->second.order)) {
        fc->second.kind = gate->second.kind = *kind;
        continue;
      }
    }
    if (fc != linears.end()) linears.erase(fc);
    linears.erase(layer + std::string(kGate));
  }
}

// The embedding table, or lm_head.
bool IsTable(const WeightSlot& slot) {
  return slot.name == std::string(model::kEmbeddingStem) + ".weight" ||
         slot.name == std::string(model::kHeadStem) + ".weight";
}

// Linears, and tables, that keep a form on the target.
KeptLinears LinearsToKeep(const SourceOptions& options, const WeightSource& source) {
  model::ModelConfig plain = source.config;
  plain.quant_algo = QuantAlgo::kNone;
  model::DecoderWeights unused;
  KeptLinears linears;
  size_t num_linears = 0;
  const bool takes_tables =
      model::FactsOf(options.target.value_or(DeviceKind::kCpu)).has_integer_tables;
  for (const WeightSlot& slot : model::WeightSlots(plain, unused)) {
    const bool is_taken_table =
        IsTable(slot) && (takes_tables || slot.name.starts_with(model::kHeadStem));
    if (!slot.is_linear && !is_taken_table) continue;
    if (slot.is_linear) ++num_linears;
    std::optional<KeptLinear> linear =
        KeptOf(slot, source, ComputedDType(options, source), KeepsBlocks(options));
    if (!linear) continue;
    std::string stem = linear->stem();
    linears.emplace(std::move(stem), *std::move(linear));
  }
  const bool is_narrow = source.config.dtype != DType::kF32 || !options.dtype;  // else bfloat16
  std::erase_if(linears, [&](const auto& named) {
    const KeptLinear& linear = named.second;
    const bool is_grouped = linear.kind.codes == DType::kF8E4M3 && linear.kind.has_groups();
    const bool is_taken = options.target == DeviceKind::kCuda
                              ? is_narrow
                              : source.config.dtype == DType::kBF16;  // what CPUs multiply it with
    return is_grouped && (!is_taken || IsTable(linear.slot));
  });
  const auto is_fp8 = [](const auto& named) {
    return named.second.kind.codes == DType::kF8E4M3 && !named.second.kind.has_groups();
  };
  std::erase_if(linears, [&](const auto& named) {
    const KeptLinear& linear = named.second;
    return IsTable(linear.slot) && (is_fp8(named) || linear.order != nullptr);
  });
  const auto num_fp8 = static_cast<size_t>(std::ranges::count_if(linears, is_fp8));
  if (num_fp8 > 0 && num_fp8 == num_linears && options.target != DeviceKind::kCpu && is_narrow)
    return linears;
  std::erase_if(linears, is_fp8);
  // float32 asks for every bit of their numbers.
  if (options.dtype == DType::kF32)
    std::erase_if(linears,
                  [](const auto& named) { return named.second.kind.codes == DType::kF4E2M1; });
  if (options.target == DeviceKind::kCuda)
    std::erase_if(linears, [](const auto& named) {
      const auto& [slot, forms, kind, order] = named.second;
      if (slot.num_experts == 0) return order != nullptr;
      return (kind.codes != DType::kF8E4M3 || kind.has_groups()) &&
             !ops::ExpertsTakeCodes({.codes = kind.codes,
                                     .in_features = slot.shape[1],
                                     .group_size = kind.group_size});
    });
  if (source.config.gated_mlp) PairBranches(linears);
  return linears;
}

LinearForm LinearFormOf(const KeptLinear& linear) {
  return {.dtype = linear.kind.codes,
          .group_size = static_cast<int>(linear.kind.group_size),
          .has_offsets = linear.kind.has_offsets,
          .blocks = linear.kind.blocks,
          .has_order = linear.order != nullptr};
}

// The algorithm of all linears of one form.
void SetOneForm(const LinearForm& form, model::ModelConfig& config) {
  if (form.dtype == DType::kF8E4M3)
    config.quant_algo = QuantAlgo::kFp8PerChannelPerToken;
  else if (form.has_groups())
    config.quant_algo = form.dtype == DType::kI4 ? QuantAlgo::kW4A16Gptq : QuantAlgo::kW8A16Gptq;
  else
    config.quant_algo = form.dtype == DType::kI4 ? QuantAlgo::kW4A16 : QuantAlgo::kW8A16;
  config.group_size = form.group_size;
  config.has_zero_point = form.has_offsets;
}

// One algorithm where all linears have one form, or each row is one group in all of them; else a
// form for each.
void SetForms(const KeptLinears& linears, bool are_all, model::ModelConfig& config) {
  LinearForm one = LinearFormOf(linears.begin()->second);
  // Of all linears and of nothing else.
  const bool has_name =
      one.dtype != DType::kF4E2M1 && !one.is_grouped_fp8() && !one.has_order &&
      one.blocks.empty() &&
      std::ranges::none_of(linears, [](const auto& named) { return IsTable(named.second.slot); });
  const auto all = [&](const auto& has) {
    return are_all && has_name && std::ranges::all_of(linears, has);
  };
  if (all([&](const auto& named) { return LinearFormOf(named.second) == one; }))
    return SetOneForm(one, config);
  one.group_size = 0;
  if (one.has_offsets && all([&](const auto& named) {
        const KeptLinear& linear = named.second;
        return linear.kind.codes == one.dtype && linear.kind.has_offsets &&
               linear.order == nullptr && linear.kind.group_size == linear.slot.shape[1];
      }))
    return SetOneForm(one, config);
  config.quant_algo = QuantAlgo::kMixedPrecision;
  for (const auto& [stem, linear] : linears) config.slot_forms[stem] = LinearFormOf(linear);
}

bool IsAskedFor(const SourceOptions& options, const model::ModelConfig& config) {
  return options.quant_algo.value_or(config.quant_algo) == config.quant_algo &&
         options.group_size.value_or(config.group_size) == config.group_size;
}

// A part of the linear's recipe that reads `tensor`, its scales or offsets of that kind.
WeightPart PartOf(const WeightPart& part, const artifact::StoredTensor& tensor,
                  const FormKind& kind) {
  const auto columns_of = [&](int64_t columns) {
    if (kind.blocks.empty()) return columns / kind.group_size;
    return columns / (kind.group_size * kind.blocks.groups) * kind.blocks.num_bytes();
  };
  WeightPart of_groups = part;
  of_groups.tensor = &tensor;
  of_groups.column = kind.has_groups() ? columns_of(part.column) : 0;
  of_groups.num_columns = kind.has_groups() ? columns_of(part.num_columns) : 1;
  of_groups.stored_column = kind.has_groups() ? columns_of(part.stored_column) : 0;
  return of_groups;
}

class OrderReader final : public artifact::TensorReader {
 public:
  explicit OrderReader(std::shared_ptr<const std::vector<int32_t>> order)
      : order_(std::move(order)) {}

  void Read(const artifact::TensorBlock& block, void* out) const override {
    std::memcpy(out, order_->data() + block.row,
                static_cast<size_t>(block.num_rows) * sizeof(int32_t));
  }

 private:
  std::shared_ptr<const std::vector<int32_t>> order_;
};

// The recipe of a linear's order.
void SetOrder(const KeptLinear& linear, const WeightSlot& slot, WeightSource& source) {
  const artifact::StoredTensor& order = source.read_tensors.emplace_back(
      artifact::StoredTensor{.name = slot.name,
                             .dtype = DType::kI32,
                             .shape = slot.shape,
                             .data = {},
                             .reader = std::make_shared<OrderReader>(linear.order)});
  source.recipes[slot.name] = {.shape = slot.shape,
                               .parts = {{.tensor = &order, .num_rows = slot.shape[0]}}};
}

// Of the linear's codes, of its scales, and of its offsets where it has them.
void SetRecipes(const KeptLinear& linear, const WeightSlot& scales, const WeightSlot* offsets,
                WeightSource& source) {
  WeightRecipe& codes = source.recipes.at(linear.slot.name);
  WeightRecipe of_scales{.shape = scales.shape, .parts = {}};
  WeightRecipe of_offsets{.shape = scales.shape, .parts = {}};
  const FormKind& kind = linear.kind;
  const auto keep = [&](const artifact::StoredTensor& tensor) -> const artifact::StoredTensor& {
    return source.read_tensors.emplace_back(tensor);
  };
  for (size_t i = 0; i < codes.parts.size(); ++i) {
    WeightPart& part = codes.parts[i];
    const NativeForm form = InKind(*linear.forms[i], kind);
    const bool has_blocks = !kind.blocks.empty();
    of_scales.parts.push_back(
        PartOf(part, keep(has_blocks ? *form.scale_blocks : form.scales), kind));
    if (form.offsets)
      of_offsets.parts.push_back(
          PartOf(part, keep(has_blocks ? *form.offset_blocks : *form.offsets), kind));
    part.tensor = &keep(form.codes);
  }
  source.recipes[scales.name] = std::move(of_scales);
  if (offsets != nullptr) source.recipes[offsets->name] = std::move(of_offsets);
}

}  // namespace

std::set<std::string> KeepNativeForms(const SourceOptions& options, WeightSource& source) {
  if (source.packed.native.empty()) return {};
  const KeptLinears linears = LinearsToKeep(options, source);
  if (linears.empty()) return {};
  model::ModelConfig config = source.config;
  config.quant_algo = QuantAlgo::kNone;
  model::DecoderWeights unused;
  const std::vector<WeightSlot> plain = model::WeightSlots(config, unused);
  const auto num_linears =
      static_cast<size_t>(std::ranges::count(plain, true, &WeightSlot::is_linear));
  SetForms(linears, linears.size() == num_linears, config);
  if (!IsAskedFor(options, config)) return {};
  model::ModelConfig valid = config;  // FP8 makes float32 bfloat16 later
  if (valid.quant_algo == QuantAlgo::kFp8PerChannelPerToken && !options.dtype &&
      valid.dtype == DType::kF32)
    valid.dtype = DType::kBF16;
  if (!model::Validate(valid).ok()) return {};
  const std::vector<WeightSlot> slots = model::WeightSlots(config, unused);
  std::map<std::string, const WeightSlot*> offsets;  // by their matrix
  for (const WeightSlot& slot : slots)
    if (slot.kind == WeightSlot::Kind::kOffsets)
      offsets.emplace(model::MatrixOfScales(slot), &slot);
  std::set<std::string> names;
  for (const WeightSlot& slot : slots) {
    if (slot.kind != WeightSlot::Kind::kScales && slot.kind != WeightSlot::Kind::kOrder) continue;
    const std::string matrix = model::MatrixOfScales(slot);
    const KeptLinear& linear = linears.at(matrix.substr(0, matrix.rfind('.')));
    if (slot.kind == WeightSlot::Kind::kOrder) {
      SetOrder(linear, slot, source);
      continue;
    }
    for (const WeightPart& part : source.recipes.at(matrix).parts) names.insert(part.tensor->name);
    SetRecipes(linear, slot, linear.kind.has_offsets ? offsets.at(matrix) : nullptr, source);
  }
  source.config = std::move(config);
  return names;
}

}  // namespace inflight::builder
