// SPDX-License-Identifier: Apache-2.0
#include "builder/recipes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "artifact/printable.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "builder/medusa_files.h"
#include "builder/quantize.h"
#include "model/families/families.h"

namespace inflight::builder {
namespace {

using artifact::StoredTensor;
using model::TensorNames;
using model::TensorRow;
using model::WeightSlot;

constexpr std::string_view kLayers = "transformer.layers.";

// The stored tensors that make a checkpoint's: names, prefix included, and which share of their
// rows (TensorRow).
struct Stored {
  std::vector<std::string> names;
  std::vector<std::string> shared = {};  // of shared experts
  TensorRow row = {};
};

// Names that the files of one model have.
struct NamesInFiles {
  std::string_view prefix;
  std::string_view head;
};

constexpr std::string_view kHeadStem = "lm_head";

std::string OfExpert(std::string_view name, int expert) {
  const size_t at = name.find(model::kExpertNumber);
  if (at == std::string_view::npos) return std::string(name);
  return fmt::format("{}{}{}", name.substr(0, at), expert, name.substr(at + 1));
}

// Of stored names, ".weight" or ".bias" in most.
std::string_view SuffixOf(const TensorRow& row, std::string_view suffix) {
  if (!row.is_bare) return suffix;
  return suffix == ".bias" ? "_bias" : "";
}

Stored StoredOf(const TensorNames& table, const NamesInFiles& in_files,
                const artifact::TensorSet& tensors, const WeightSlot& slot) {
  const std::string& name = slot.name;
  const size_t suffix_at = name.rfind('.');
  const std::string suffix = name.substr(suffix_at);
  std::string stem = name.substr(0, suffix_at);
  if (stem == kHeadStem) return {.names = {fmt::format("{}{}", in_files.head, suffix)}};
  std::string stored_prefix(in_files.prefix);
  const std::vector<TensorRow>* rows = &table.model_rows;
  if (stem.starts_with(kLayers)) {
    const size_t dot = stem.find('.', kLayers.size());
    stored_prefix +=
        fmt::format("{}{}.", table.layer_prefix, stem.substr(kLayers.size(), dot - kLayers.size()));
    stem = stem.substr(dot + 1);
    rows = &table.layer_rows;
  }
  Stored first;
  for (const TensorRow& row : *rows) {
    if (row.checkpoint != stem || IsOfExperts(row) != (slot.num_experts > 0)) continue;
    Stored found = {.names = {}, .shared = {}, .row = row};
    const int num_names =
        row.holds_experts ? 1 : std::max(slot.num_experts - slot.num_shared_experts, 1);
    for (int expert = 0; expert < num_names; ++expert)
      for (const std::string_view stored : row.stored)
        found.names.push_back(
            fmt::format("{}{}{}", stored_prefix, OfExpert(stored, expert), SuffixOf(row, suffix)));
    for (const std::string_view stored : row.shared)
      found.shared.push_back(fmt::format("{}{}{}", stored_prefix, stored, suffix));
    if (tensors.Find(found.names.front()) != nullptr) return found;
    if (first.names.empty()) first = std::move(found);
  }
  return first;
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF64;
}

// Finds stored tensors, and keeps what is missing and what is used.
class TensorFinder {
 public:
  explicit TensorFinder(WeightSource& source) : source_(source), used_(source.files.size()) {}

  // Null if it is missing, which Finish reports. `quantized`: the dtype that it may have beside
  // floats.
  Result<const StoredTensor*> Find(size_t file, const std::string& name, const Shape& expected,
                                   std::optional<DType> quantized) {
    const StoredTensor* tensor = source_.files[file].Find(name);
    if (tensor == nullptr) {
      missing_.insert(Label(file, name));
      return tensor;
    }
    used_[file].insert(tensor->name);
    const int last = expected.rank() - 1;
    if (quantized && HasHalfBytes(*quantized) && tensor->dtype == DType::kI8 && last > 0 &&
        tensor->shape.rank() == expected.rank() && tensor->shape[last] <= expected[last])
      tensor = &source_.read_tensors.emplace_back(OfHalfBytes(*tensor, *quantized));
    if (expected.rank() == 2 && expected[0] == 1 && tensor->shape == Shape{expected[1]})
      tensor = Flat(*tensor, expected);  // one row, as a vector
    if (tensor->shape != expected)
      return InvalidArgument(fmt::format("{}: {}: expected shape {}, found {}", source_.where,
                                         Label(file, name), expected.ToString(),
                                         tensor->shape.ToString()));
    if (!IsFloat(tensor->dtype) && tensor->dtype != quantized)
      return Unimplemented(fmt::format(
          "{}: {}: dtype {}: quantised weights other than a checkpoint's with quant_algo W8A16, "
          "W8A16_GPTQ (int8), W4A16, W4A16_GPTQ (two int4 in an int8), W4A16_MXFP4 (two float4 in "
          "an int8, uint8) or FP8_PER_CHANNEL_PER_TOKEN (float8_e4m3fn) are not supported",
          source_.where, Label(file, name), DTypeName(tensor->dtype)));
    return tensor;
  }

  // A tensor whose rows lie one behind the other, as if they had no dimension before them.
  const StoredTensor* Flat(const StoredTensor& tensor, const Shape& shape) {
    if (tensor.shape == shape) return &tensor;
    StoredTensor flat = tensor;
    flat.shape = shape;
    return &source_.read_tensors.emplace_back(std::move(flat));
  }

  Status Finish(const std::vector<std::string_view>& ignorable,
                bool refuses_unexpected = false) const {
    if (!missing_.empty())
      return InvalidArgument(
          fmt::format("{}: Required but not provided tensors:{}", source_.where, missing_));
    std::vector<std::string> unexpected;
    for (size_t file = 0; file < used_.size(); ++file)
      for (const StoredTensor& tensor : source_.files[file].tensors())
        if (!used_[file].contains(tensor.name) && !IsIgnorable(tensor.name, ignorable))
          unexpected.push_back(Label(file, tensor.name));
    if (!unexpected.empty() && refuses_unexpected)
      return Unimplemented(fmt::format("{}: {}: {} has no such tensor", source_.where,
                                       artifact::Printable(unexpected.front()),
                                       source_.config.architecture));
    if (!unexpected.empty())
      logging::Warning(
          "unexpected tensors are not used",
          {{"path", source_.where}, {"count", unexpected.size()}, {"first", unexpected.front()}});
    return Status::Ok();
  }

 private:
  static bool IsIgnorable(std::string_view name, const std::vector<std::string_view>& ends) {
    for (const std::string_view end : ends)
      if (name.ends_with(end)) return true;
    return false;
  }

  std::string Label(size_t file, std::string_view name) const {
    if (source_.ranks.num_ranks() > 1)
      return fmt::format("{}: {}", artifact::RankFileName(static_cast<int>(file)), name);
    return file == 0 ? std::string(name) : fmt::format("{}: {}", kMedusaFile, name);
  }

  WeightSource& source_;
  std::set<std::string> missing_;
  std::vector<std::set<std::string_view>> used_;  // by file
};

// Rows that each of `num_parts` stored tensors contributes to `slot`.
std::vector<int64_t> PartRows(const model::ModelConfig& config, const WeightSlot& slot,
                              size_t num_parts) {
  if (slot.num_experts > 0)
    return std::vector(num_parts, slot.shape[0] / slot.num_experts *
                                      (slot.num_experts - slot.num_shared_experts) /
                                      static_cast<int64_t>(num_parts));
  if (slot.is_router && num_parts == 2) return {slot.shape[0] - 1, 1};
  if (num_parts != 3) return {slot.shape[0]};
  const int64_t kv_rows = int64_t{config.num_kv_heads} * config.head_dim;
  return {int64_t{config.num_heads} * config.head_dim, kv_rows, kv_rows};
}

// Whether "blk.3.attn_q.weight" is one of the table's names of such tensors.
bool IsPaired(const TensorNames& table, std::string_view name) {
  const std::string_view stem = name.substr(0, name.rfind('.'));
  return std::ranges::any_of(table.paired, [&](std::string_view paired) {
    return stem.ends_with(paired) && stem[stem.size() - paired.size() - 1] == '.';
  });
}

// Models saved without their head lack the prefix ("wte.weight").
std::string_view PrefixInFiles(const TensorNames& table, const artifact::TensorSet& tensors) {
  const std::string bare = fmt::format("{}.weight", table.model_rows.front().stored.front());
  if (tensors.Find(bare) != nullptr) return {};
  for (const std::string_view prefix : table.other_prefixes)
    if (tensors.Find(fmt::format("{}{}", prefix, bare)) != nullptr) return prefix;
  return table.prefix;
}

std::string_view HeadInFiles(const TensorNames& table, const artifact::TensorSet& tensors) {
  for (const std::string_view head : table.other_heads)
    if (tensors.Find(fmt::format("{}.weight", head)) != nullptr) return head;
  return table.head;
}

// The parts of a tensor of query, key and value rows whose stored one holds them in groups
// (TensorRow). `whole` is the part that all of it would be.
std::vector<WeightPart> GroupedParts(const model::ModelConfig& config, const WeightPart& whole) {
  const int64_t head = config.head_dim;
  const int64_t num_queries = config.num_heads / config.num_kv_heads;
  const int64_t keys = config.num_heads * head;
  const int64_t values = keys + config.num_kv_heads * head;
  std::vector<WeightPart> parts;
  int64_t stored_row = whole.stored_row;
  for (int64_t group = 0; group < config.num_kv_heads; ++group)
    for (const auto& [row, num_rows] :
         {std::pair{group * num_queries * head, num_queries * head},
          std::pair{keys + group * head, head}, std::pair{values + group * head, head}}) {
      WeightPart part = whole;
      part.row = row;
      part.num_rows = num_rows;
      part.stored_row = stored_row;
      stored_row += num_rows;
      parts.push_back(part);
    }
  return parts;
}

// The shards of one name have one dtype: its parts are read alike, and copies compared by bytes.
Status CheckOneDType(const WeightSource& source, const std::vector<Shard>& shards) {
  std::map<std::string_view, std::pair<int, DType>> first;  // by name, its rank and dtype
  for (const Shard& shard : shards) {
    const StoredTensor* tensor = source.files[static_cast<size_t>(shard.rank)].Find(shard.name);
    if (tensor == nullptr) continue;
    const auto& [rank, dtype] =
        first.emplace(shard.name, std::pair{shard.rank, tensor->dtype}).first->second;
    if (tensor->dtype != dtype)
      return DataLoss(fmt::format(
          "{}: {}: {}: dtype {}, {} has {}; the files are not of one checkpoint, convert the "
          "model again",
          source.where, artifact::RankFileName(shard.rank), shard.name, DTypeName(tensor->dtype),
          artifact::RankFileName(rank), DTypeName(dtype)));
  }
  return Status::Ok();
}

// Parts of a slot whose experts one stored tensor holds, or one for each branch; none of what is
// missing.
Status AddStoredExperts(const Stored& stored, const WeightSlot& slot, TensorFinder& finder,
                        WeightRecipe& recipe) {
  const TensorRow& form = stored.row;
  const auto num_tensors = std::ssize(stored.names);
  const bool is_turned = form.has_activated_first || form.has_alternating_rows;
  const int64_t num_branches = is_turned ? 2 : num_tensors;
  const int64_t num_experts = slot.num_experts - slot.num_shared_experts;
  const int64_t num_rows = slot.shape[0] / slot.num_experts / num_branches;
  const int64_t of_tensor = num_rows * num_branches / num_tensors;  // rows of an expert
  const bool is_matrix = slot.shape.rank() == 2;
  const int64_t width = is_matrix ? slot.shape[1] : 1;
  const bool is_transposed = form.is_transposed && is_matrix;
  const Shape in_file = is_transposed ? Shape{num_experts, width, of_tensor}
                        : is_matrix   ? Shape{num_experts, of_tensor, width}
                                      : Shape{num_experts, of_tensor};
  const Shape flat = is_transposed ? Shape{num_experts * width, of_tensor}
                     : is_matrix   ? Shape{num_experts * of_tensor, width}
                                   : Shape{num_experts * of_tensor};
  std::vector<const StoredTensor*> tensors;
  for (const std::string& name : stored.names) {
    ASSIGN_OR_RETURN(const StoredTensor* tensor, finder.Find(0, name, in_file, /*quantized=*/{}));
    if (tensor == nullptr) return Status::Ok();
    tensors.push_back(finder.Flat(*tensor, flat));
  }
  for (int64_t i = 0; i < num_experts * num_branches; ++i) {
    const int64_t expert = i / num_branches;
    const int64_t branch = i % num_branches;
    const int64_t from = is_turned ? branch ^ 1 : 0;  // the other one of the two
    const int64_t first = form.has_alternating_rows ? from : from * num_rows;
    recipe.parts.push_back({.tensor = tensors[static_cast<size_t>(is_turned ? 0 : branch)],
                            .row = i * num_rows,
                            .num_rows = num_rows,
                            .num_columns = width,
                            .stored_row = is_transposed ? first : expert * of_tensor + first,
                            .stored_column = is_transposed ? expert * width : 0,
                            .is_transposed = is_transposed,
                            .row_step = form.has_alternating_rows ? 2 : 1});
  }
  return Status::Ok();
}

// Parts of the shared experts of a slot, behind the others. Each stored tensor holds its share of
// all of them: rows one's behind the other's, or where there is one tensor, columns.
Status AddSharedExperts(const Stored& stored, const WeightSlot& slot, TensorFinder& finder,
                        WeightRecipe& recipe) {
  const auto num_branches = std::ssize(stored.shared);
  const int64_t num_shared = slot.num_shared_experts;
  const int64_t width = slot.shape[1];
  const int64_t num_rows = slot.shape[0] / slot.num_experts / num_branches;
  const bool has_columns = num_branches == 1;
  const Shape shape =
      has_columns ? Shape{num_rows, num_shared * width} : Shape{num_shared * num_rows, width};
  int64_t row = slot.shape[0] / slot.num_experts * (slot.num_experts - num_shared);
  for (int64_t i = 0; i < num_shared; ++i)
    for (const std::string& name : stored.shared) {
      ASSIGN_OR_RETURN(const StoredTensor* tensor, finder.Find(0, name, shape, /*quantized=*/{}));
      recipe.parts.push_back({.tensor = tensor,
                              .row = row,
                              .num_rows = num_rows,
                              .num_columns = width,
                              .stored_row = has_columns ? 0 : i * num_rows,
                              .stored_column = has_columns ? i * width : 0});
      row += num_rows;
    }
  return Status::Ok();
}

// Recipes of tensors under a family's names: each is one stored tensor, or several one above
// another.
Status StackTensors(const TensorNames& table, const NamesInFiles& in_files, TensorFinder& finder,
                    WeightSource& source) {
  const model::ModelConfig& config = source.config;
  model::DecoderWeights unused;
  for (const WeightSlot& slot : model::WeightSlots(config, unused)) {
    const bool is_medusa = slot.name.starts_with(model::kMedusaHeads);
    const Stored stored = is_medusa
                              ? Stored{.names = {MedusaName(slot.name, config.num_medusa_layers)}}
                              : StoredOf(table, in_files, source.files.front(), slot);
    const std::vector<std::string>& names = stored.names;
    const std::vector<int64_t> part_rows = PartRows(config, slot, names.size());
    const int64_t width = slot.shape.rank() == 1 ? 1 : slot.shape[1];
    const bool is_transposed = table.has_conv1d && slot.name.starts_with(kLayers) &&
                               slot.kind == WeightSlot::Kind::kMatrix;
    WeightRecipe recipe{.shape = slot.shape,
                        .parts = {},
                        .added = slot.is_one_centered && !table.has_whole_norms ? 1.0F : 0.0F};
    if (stored.row.holds_experts) RETURN_IF_ERROR(AddStoredExperts(stored, slot, finder, recipe));
    int64_t row = 0;
    for (size_t i = 0; i < names.size() && !stored.row.holds_experts; row += part_rows[i], ++i) {
      const int64_t stored_rows = stored.row.num_shares * part_rows[i] + stored.row.skipped_rows;
      const Shape expected = slot.shape.rank() == 1 ? Shape{stored_rows}
                             : is_transposed        ? Shape{width, stored_rows}
                                                    : Shape{stored_rows, width};
      ASSIGN_OR_RETURN(const StoredTensor* tensor,
                       finder.Find(is_medusa ? 1 : 0, names[i], expected, /*quantized=*/{}));
      const WeightPart part = {
          .tensor = tensor,
          .row = row,
          .num_rows = part_rows[i],
          .num_columns = width,
          .stored_row = stored.row.share * part_rows[i] + stored.row.skipped_rows,
          .is_transposed = is_transposed,
          .pair_rows = IsPaired(table, names[i]) ? config.head_dim : 0};
      if (stored.row.has_grouped_heads)
        recipe.parts = GroupedParts(config, part);
      else
        recipe.parts.push_back(part);
    }
    if (slot.num_shared_experts > 0)
      RETURN_IF_ERROR(AddSharedExperts(stored, slot, finder, recipe));
    source.recipes.emplace(slot.name, std::move(recipe));
  }
  return Status::Ok();
}

}  // namespace

Status MakeCheckpointRecipes(const Sharding& sharding, WeightSource& source) {
  TensorFinder finder(source);
  model::DecoderWeights unused;
  for (const WeightSlot& slot : model::WeightSlots(source.config, unused)) {
    // A checkpoint may leave quantising to whoever loads it.
    if (IsOfMatrix(slot)) {
      const auto matrix = source.recipes.find(model::MatrixOfScales(slot));
      if (matrix->second.parts.empty() || !IsQuantized(matrix->second)) continue;
    }
    WeightRecipe recipe{.shape = slot.shape, .parts = {}};
    std::set<std::pair<int64_t, int64_t>> held;  // where a part begins; equal begins are copies
    const std::vector<Shard> shards = ShardsOf(source.config, sharding, slot);
    const auto quantized = slot.is_quantized || HasExponents(slot) || HasBlocks(slot) ||
                                   slot.kind == WeightSlot::Kind::kOrder
                               ? std::optional(CheckpointDType(source.config, slot))
                               : std::nullopt;
    for (const Shard& shard : shards) {
      const auto file = static_cast<size_t>(shard.rank);
      ASSIGN_OR_RETURN(const StoredTensor* tensor,
                       finder.Find(file, shard.name,
                                   model::FileShape(shard.num_experts, shard.shape), quantized));
      if (tensor == nullptr) continue;
      tensor = finder.Flat(*tensor, shard.shape);
      int64_t stored_row = 0;
      int64_t stored_column = 0;
      for (const RowRange& range : shard.rows) {
        const WeightPart part{.tensor = tensor,
                              .row = range.row,
                              .num_rows = std::min(range.num_rows, slot.shape[0] - range.row),
                              .column = shard.column,
                              .num_columns = shard.num_columns,
                              .stored_row = stored_row,
                              .stored_column = stored_column};
        if (shard.is_side_by_side)
          stored_column += shard.num_columns;
        else
          stored_row += range.num_rows;
        if (part.num_rows <= 0) continue;  // padding alone
        if (held.emplace(part.row, part.column).second)
          recipe.parts.push_back(part);
        else
          source.copies.push_back({slot.name, artifact::RankFileName(shard.rank), part});
      }
    }
    RETURN_IF_ERROR(CheckOneDType(source, shards));
    const bool is_stored_so =
        slot.is_quantized && (slot.form.dtype == DType::kF4E2M1 || slot.form.has_order);
    if (is_stored_so && !recipe.parts.empty() && !IsQuantized(recipe))
      return Unimplemented(
          fmt::format("{}: {}: dtype {}: floats are not rounded to {}", source.where, slot.name,
                      DTypeName(recipe.parts.front().tensor->dtype),
                      slot.form.has_order ? "an order of columns (desc_act)" : "W4A16_MXFP4"));
    source.recipes.emplace(slot.name, std::move(recipe));
  }
  return finder.Finish({kKvScale, kNormScale, kInputScale});
}

Status MakeHuggingFaceRecipes(WeightSource& source) {
  model::ModelConfig& config = source.config;
  ASSIGN_OR_RETURN(const model::Family* family, model::FamilyOf(config.architecture));
  const TensorNames& table = family->tensors;
  const artifact::TensorSet& tensors = source.files.front();
  const std::string_view head = HeadInFiles(table, tensors);
  const std::string head_weight = fmt::format("{}.weight", head);
  if (tensors.Find(head_weight) == nullptr) config.tied_embeddings = true;
  TensorFinder finder(source);
  RETURN_IF_ERROR(StackTensors(table, {PrefixInFiles(table, tensors), head}, finder, source));
  std::vector<std::string_view> ignorable = table.ignorable;
  if (config.tied_embeddings) ignorable.emplace_back(head_weight);  // the same data again
  return finder.Finish(ignorable);
}

Status MakeGgufRecipes(WeightSource& source) {
  ASSIGN_OR_RETURN(const model::Family* family, model::FamilyOf(source.config.architecture));
  const TensorNames& table = family->gguf.tensors;
  TensorFinder finder(source);
  RETURN_IF_ERROR(StackTensors(table, {table.prefix, table.head}, finder, source));
  return finder.Finish(table.ignorable, /*refuses_unexpected=*/true);
}

}  // namespace inflight::builder
