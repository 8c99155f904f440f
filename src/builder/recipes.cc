// SPDX-License-Identifier: Apache-2.0
#include "builder/recipes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <set>
#include <string_view>

#include "base/log.h"

namespace inflight::builder {
namespace {

using artifact::StoredTensor;
using model::WeightSlot;

// A checkpoint name's stem and the stored stems that make it. Stems lack ".weight" and ".bias".
struct NameRow {
  std::string_view checkpoint;
  std::array<std::string_view, 3> stored;  // stacked along rows; empty ones at the end are unused
};

// Names outside the layers, then names inside them (after "transformer.layers.I." and after the
// family's own layer prefix). spec/engine.md 1.7.
struct NameTable {
  std::string_view prefix;        // of all names but lm_head; optional in the files
  std::string_view layer_prefix;  // followed by "I."
  std::vector<NameRow> model_rows;
  std::vector<NameRow> layer_rows;
  bool has_conv1d = false;                  // matrices inside layers are stored [in, out]
  std::vector<std::string_view> ignorable;  // ends of names that hold nothing to load
};

const NameTable& LlamaNames() {
  static const NameTable table = {
      .prefix = "model.",
      .layer_prefix = "layers.",
      .model_rows = {{"transformer.vocab_embedding", {"embed_tokens"}},
                     {"transformer.ln_f", {"norm"}}},
      .layer_rows = {{"input_layernorm", {"input_layernorm"}},
                     {"attention.qkv",
                      {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
                     {"attention.dense", {"self_attn.o_proj"}},
                     {"post_layernorm", {"post_attention_layernorm"}},
                     {"mlp.fc", {"mlp.gate_proj"}},
                     {"mlp.gate", {"mlp.up_proj"}},
                     {"mlp.proj", {"mlp.down_proj"}}},
      .ignorable = {"rotary_emb.inv_freq"}};
  return table;
}

const NameTable& Gpt2Names() {
  static const NameTable table = {.prefix = "transformer.",
                                  .layer_prefix = "h.",
                                  .model_rows = {{"transformer.vocab_embedding", {"wte"}},
                                                 {"transformer.position_embedding", {"wpe"}},
                                                 {"transformer.ln_f", {"ln_f"}}},
                                  .layer_rows = {{"input_layernorm", {"ln_1"}},
                                                 {"attention.qkv", {"attn.c_attn"}},
                                                 {"attention.dense", {"attn.c_proj"}},
                                                 {"post_layernorm", {"ln_2"}},
                                                 {"mlp.fc", {"mlp.c_fc"}},
                                                 {"mlp.proj", {"mlp.c_proj"}}},
                                  .has_conv1d = true,
                                  .ignorable = {"attn.bias", "attn.masked_bias"}};
  return table;
}

constexpr std::string_view kLayers = "transformer.layers.";

// The stored names of checkpoint tensor `name`, prefix included.
std::vector<std::string> StoredNames(const NameTable& table, std::string_view prefix,
                                     const std::string& name) {
  if (name == "lm_head.weight") return {name};
  const size_t suffix_at = name.rfind('.');
  const std::string suffix = name.substr(suffix_at);
  std::string stem = name.substr(0, suffix_at);
  std::string stored_prefix(prefix);
  const std::vector<NameRow>* rows = &table.model_rows;
  if (stem.starts_with(kLayers)) {
    const size_t dot = stem.find('.', kLayers.size());
    stored_prefix +=
        fmt::format("{}{}.", table.layer_prefix, stem.substr(kLayers.size(), dot - kLayers.size()));
    stem = stem.substr(dot + 1);
    rows = &table.layer_rows;
  }
  std::vector<std::string> names;
  for (const NameRow& row : *rows)
    if (row.checkpoint == stem)
      for (const std::string_view stored : row.stored)
        if (!stored.empty()) names.push_back(fmt::format("{}{}{}", stored_prefix, stored, suffix));
  return names;
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF64;
}

// Collects recipes, what is missing and what is used.
class RecipeMaker {
 public:
  explicit RecipeMaker(WeightSource& source) : source_(source) {}

  // Rows of the parts of a stacked matrix may differ (q against k); `part_rows` lists them.
  Status Add(const WeightSlot& slot, const std::vector<std::string>& names,
             const std::vector<int64_t>& part_rows, bool is_transposed) {
    WeightRecipe recipe{.shape = slot.shape, .parts = {}, .is_transposed = is_transposed};
    for (size_t i = 0; i < names.size(); ++i) {
      const StoredTensor* tensor = source_.tensors.Find(names[i]);
      if (tensor == nullptr) {
        missing_.insert(names[i]);
        continue;
      }
      used_.insert(names[i]);
      RETURN_IF_ERROR(Check(slot, *tensor, PartShape(slot.shape, part_rows[i], is_transposed)));
      recipe.parts.push_back(tensor);
    }
    source_.recipes.emplace(slot.name, std::move(recipe));
    return Status::Ok();
  }

  Status Finish(const std::vector<std::string_view>& ignorable) const {
    if (!missing_.empty())
      return InvalidArgument(
          fmt::format("{}: Required but not provided tensors:{}", source_.where, missing_));
    std::vector<std::string> unexpected;
    for (const StoredTensor& tensor : source_.tensors.tensors())
      if (!used_.contains(tensor.name) && !IsIgnorable(tensor.name, ignorable))
        unexpected.push_back(tensor.name);
    if (!unexpected.empty())
      logging::Warning(
          "unexpected tensors are not used",
          {{"path", source_.where}, {"count", unexpected.size()}, {"first", unexpected.front()}});
    return Status::Ok();
  }

 private:
  static Shape PartShape(const Shape& shape, int64_t rows, bool is_transposed) {
    if (shape.rank() == 1) return {rows};
    return is_transposed ? Shape{shape[1], rows} : Shape{rows, shape[1]};
  }

  Status Check(const WeightSlot& slot, const StoredTensor& tensor, const Shape& expected) const {
    if (tensor.shape != expected)
      return InvalidArgument(fmt::format("{}: {}: expected shape {}, found {}", source_.where,
                                         tensor.name, expected.ToString(),
                                         tensor.shape.ToString()));
    const bool is_int8 = slot.is_quantized && tensor.dtype == DType::kI8;
    if (!IsFloat(tensor.dtype) && !is_int8)
      return Unimplemented(fmt::format(
          "{}: {}: dtype {}: quantised weights other than a checkpoint's with quant_algo W8A16 are "
          "not built",
          source_.where, tensor.name, DTypeName(tensor.dtype)));
    return Status::Ok();
  }

  static bool IsIgnorable(std::string_view name, const std::vector<std::string_view>& ends) {
    for (const std::string_view end : ends)
      if (name.ends_with(end)) return true;
    return false;
  }

  WeightSource& source_;
  std::set<std::string> missing_;
  std::set<std::string> used_;
};

// Rows that each of `num_parts` stored tensors contributes to `slot`.
std::vector<int64_t> PartRows(const model::ModelConfig& config, const WeightSlot& slot,
                              size_t num_parts) {
  if (num_parts != 3) return {slot.shape[0]};
  const int64_t kv_rows = int64_t{config.num_kv_heads} * config.head_dim;
  return {int64_t{config.num_heads} * config.head_dim, kv_rows, kv_rows};
}

// Models saved without their head lack the prefix ("wte.weight").
std::string_view PrefixInFiles(const NameTable& table, const artifact::TensorSet& tensors) {
  const std::string bare = fmt::format("{}.weight", table.model_rows.front().stored.front());
  return tensors.Find(bare) != nullptr ? std::string_view() : table.prefix;
}

}  // namespace

Status MakeCheckpointRecipes(WeightSource& source) {
  RecipeMaker maker(source);
  model::DecoderWeights unused;
  for (const WeightSlot& slot : model::WeightSlots(source.config, unused)) {
    // A checkpoint may leave quantising to whoever loads it (spec/engine.md 1.9.1).
    if (slot.kind == WeightSlot::Kind::kScales) {
      const auto matrix = source.recipes.find(model::MatrixOfScales(slot));
      if (matrix->second.parts.empty() || !IsInt8(matrix->second)) continue;
    }
    RETURN_IF_ERROR(maker.Add(slot, {slot.name}, {slot.shape[0]}, /*is_transposed=*/false));
  }
  return maker.Finish({});
}

Status MakeHuggingFaceRecipes(WeightSource& source) {
  model::ModelConfig& config = source.config;
  const NameTable& table =
      config.position == model::PositionKind::kLearnedAbsolute ? Gpt2Names() : LlamaNames();
  const std::string_view prefix = PrefixInFiles(table, source.tensors);
  if (source.tensors.Find("lm_head.weight") == nullptr) config.tied_embeddings = true;

  RecipeMaker maker(source);
  model::DecoderWeights unused;
  for (const WeightSlot& slot : model::WeightSlots(config, unused)) {
    const std::vector<std::string> names = StoredNames(table, prefix, slot.name);
    const bool is_transposed = table.has_conv1d && slot.name.starts_with(kLayers) &&
                               slot.kind == WeightSlot::Kind::kMatrix;
    RETURN_IF_ERROR(maker.Add(slot, names, PartRows(config, slot, names.size()), is_transposed));
  }
  std::vector<std::string_view> ignorable = table.ignorable;
  if (config.tied_embeddings) ignorable.emplace_back("lm_head.weight");  // the same data again
  return maker.Finish(ignorable);
}

}  // namespace inflight::builder
