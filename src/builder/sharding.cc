// SPDX-License-Identifier: Apache-2.0
#include "builder/sharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "artifact/json_file.h"
#include "base/status_macros.h"

namespace inflight::builder {
namespace {

using artifact::JsonFields;
using model::ModelConfig;

constexpr std::string_view kLayers = "transformer.layers.";

Status CheckDivides(std::string_view what, int value, int tp_size) {
  if (value % tp_size == 0) return Status::Ok();
  return InvalidArgument(
      fmt::format("tp_size: got {}, {} {} is no multiple of it", tp_size, what, value));
}

// A tensor's stage and its name in the files of that stage.
struct Place {
  int stage = 0;
  std::string name;
};

Place PlaceOf(const Sharding& sharding, const std::string& name) {
  if (!name.starts_with(kLayers)) {
    const bool is_input = name.starts_with("transformer.vocab_embedding.") ||
                          name.starts_with("transformer.position_embedding.");
    return {is_input ? 0 : sharding.ranks.pp_size - 1, name};
  }
  int layer = 0;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kLayers.size(), end, layer);
  int stage = 0;
  for (; layer >= sharding.num_layers[static_cast<size_t>(stage)]; ++stage)
    layer -= sharding.num_layers[static_cast<size_t>(stage)];
  return {stage, fmt::format("{}{}{}", kLayers, layer, std::string_view(parsed.ptr, end))};
}

// So many columns of a row are not cut: a group's, of one whose rows are groups a step's
// (ops/weight.h), of int4 a byte's.
int64_t ColumnsTogether(const model::LinearForm& form) {
  if (form.group_size > 0) return form.group_size;
  if (form.has_offsets) return ops::kGroupStep;
  return HasHalfBytes(form.dtype) ? 2 : 1;
}

// What rows have, for people.
std::string NameOfColumns(const model::LinearForm& form) {
  if (form.group_size > 0) return fmt::format("weights in groups of {}", form.group_size);
  return fmt::format("{} weights{}", DTypeName(form.dtype),
                     form.has_offsets ? " with a zero point for each row" : "");
}

Status CheckColumns(const ModelConfig& config, int tp_size) {
  const auto is_any = [](const model::LinearForm& form) { return ColumnsTogether(form) == 1; };
  if (tp_size == 1 || std::ranges::all_of(FormsOf(config), is_any)) return Status::Ok();
  model::DecoderWeights unused;
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused)) {
    const bool is_cut =
        slot.name.ends_with(".attention.dense.weight") || slot.name.ends_with(".mlp.proj.weight");
    if (!slot.is_quantized || !is_cut) continue;
    if (slot.form.has_order)
      return Unimplemented(fmt::format(
          "tp_size: got {}, which cuts the columns of {}, whose order mixes those of all ranks "
          "(desc_act); take one, or widen the weights (--quant-algo none)",
          tp_size, slot.name));
    const int64_t part = slot.shape[1] / tp_size;
    if (part % ColumnsTogether(slot.form) != 0)
      return Unimplemented(fmt::format(
          "tp_size: got {}, which cuts the {} columns of {} into parts of {}; with {} only "
          "multiples of {} are supported; take fewer ranks, or widen the weights "
          "(--quant-algo none)",
          tp_size, slot.shape[1], slot.name, part, NameOfColumns(slot.form),
          ColumnsTogether(slot.form)));
  }
  return Status::Ok();
}

enum class Rule : uint8_t { kWhole, kRows, kHeads, kColumns };

Rule RuleOf(const Sharding& sharding, std::string_view name, int rank) {
  const auto is = [&](std::string_view stem) { return name.find(stem) != std::string_view::npos; };
  if (is(".attention.qkv.")) return Rule::kHeads;
  if (is(".mlp.fc.") || is(".mlp.gate.") || is(".attention.sinks.") ||
      name.starts_with("lm_head.") || name.starts_with(model::kMedusaHeads))
    return Rule::kRows;
  if (is(".attention.dense.") || is(".mlp.proj.")) return rank == 2 ? Rule::kColumns : Rule::kWhole;
  if (name.starts_with("transformer.vocab_embedding.") && sharding.use_parallel_embedding)
    return sharding.embedding_sharding_dim == 0 ? Rule::kRows : Rule::kColumns;
  return Rule::kWhole;
}

// Query, key and value rows of one rank.
std::vector<RowRange> HeadRows(const ModelConfig& config, int tp_size, int tp_rank) {
  const int64_t head = config.head_dim;
  const int64_t query_rows = config.num_heads / tp_size * head;
  const int64_t num_kv_heads = std::max(config.num_kv_heads / tp_size, 1);
  const int64_t first_kv_head = model::FirstKvHead(config.num_kv_heads, tp_size, tp_rank);
  const int64_t keys = config.num_heads * head;
  const int64_t values = keys + config.num_kv_heads * head;
  return {{tp_rank * query_rows, query_rows},
          {keys + first_kv_head * head, num_kv_heads * head},
          {values + first_kv_head * head, num_kv_heads * head}};
}

// One rank's rows of both branches of each expert.
std::vector<RowRange> ExpertRows(const model::WeightSlot& slot, int tp_size, int tp_rank) {
  const int64_t num_branches = int64_t{2} * slot.num_experts;
  const int64_t branch_rows = slot.shape[0] / num_branches;
  const int64_t num_rows = branch_rows / tp_size;
  std::vector<RowRange> rows;
  for (int64_t i = 0; i < num_branches; ++i)
    rows.push_back({i * branch_rows + tp_rank * num_rows, num_rows});
  return rows;
}

// The lengths of half-open ranges that tile [0, num_layers); empty if they do not.
std::vector<int> LayersOfRanges(const nlohmann::json& ranges, int num_layers) {
  if (!ranges.is_array()) return {};
  std::vector<int> lengths;
  int64_t begin = 0;
  for (const nlohmann::json& range : ranges) {
    if (!range.is_array() || range.size() != 2 || !range[0].is_number_integer() ||
        !range[1].is_number_integer())
      return {};
    const auto end = range[1].get<int64_t>();
    if (range[0].get<int64_t>() != begin || end < begin || end > num_layers) return {};
    lengths.push_back(static_cast<int>(end - begin));
    begin = end;
  }
  return begin == num_layers ? lengths : std::vector<int>();
}

}  // namespace

std::vector<int> EvenStages(int num_layers, int pp_size) {
  std::vector<int> stages(static_cast<size_t>(pp_size), num_layers / pp_size);
  for (int stage = 0; stage < num_layers % pp_size; ++stage) ++stages[static_cast<size_t>(stage)];
  return stages;
}

Status CheckSharding(const ModelConfig& config, const Sharding& sharding) {
  const int tp_size = sharding.ranks.tp_size;
  const int pp_size = sharding.ranks.pp_size;
  for (const auto& [what, size] : {std::pair{"tp_size", tp_size}, {"pp_size", pp_size}})
    if (size < 1)
      return InvalidArgument(fmt::format("{}: got {}, at least 1 is needed", what, size));
  if (sharding.embedding_sharding_dim != 0 && sharding.embedding_sharding_dim != 1)
    return InvalidArgument(fmt::format("embedding_sharding_dim: got {}, 0 or 1 is needed",
                                       sharding.embedding_sharding_dim));
  if (pp_size > config.num_layers)
    return InvalidArgument(
        fmt::format("pp_size: got {}, the model has {} layers", pp_size, config.num_layers));
  RETURN_IF_ERROR(CheckDivides("num_attention_heads", config.num_heads, tp_size));
  if (config.num_kv_heads % tp_size != 0 && tp_size % config.num_kv_heads != 0)
    return InvalidArgument(
        fmt::format("tp_size: got {}, it must divide num_key_value_heads {} or be a multiple of it",
                    tp_size, config.num_kv_heads));
  if (tp_size > 1 && config.has_wide_qk_norm)
    return Unimplemented(
        "tp_size: norms of all heads of q and k together are supported on one rank of tensor "
        "parallelism; give 1, and pp_size for more ranks");
  RETURN_IF_ERROR(CheckDivides("intermediate_size", config.intermediate_size, tp_size));
  if (config.num_experts > 0) {
    RETURN_IF_ERROR(
        CheckDivides("moe_intermediate_size", config.expert_intermediate_size, tp_size));
    if (config.expert_intermediate_size / tp_size % ops::kExpertPanel != 0)
      return Unimplemented(fmt::format(
          "tp_size: got {}, which cuts moe_intermediate_size {} into parts of {}; only multiples "
          "of {} are supported",
          tp_size, config.expert_intermediate_size, config.expert_intermediate_size / tp_size,
          ops::kExpertPanel));
  }
  if (config.quant_algo == model::QuantAlgo::kW4A16 && config.intermediate_size / tp_size % 2 != 0)
    return Unimplemented(fmt::format(
        "tp_size: got {}, which cuts intermediate_size {} into parts of {} columns; with int4 "
        "weights only even ones are supported, use int8",
        tp_size, config.intermediate_size, config.intermediate_size / tp_size));
  RETURN_IF_ERROR(CheckColumns(config, tp_size));
  if (sharding.use_parallel_embedding && sharding.embedding_sharding_dim == 1) {
    if (FormOfTable(config, model::kEmbeddingStem).is_quantized())
      return Unimplemented(
          "embedding_sharding_dim: got 1, a table of integers is cut by rows alone; give 0, or "
          "widen the weights (--quant-algo none)");
    RETURN_IF_ERROR(
        CheckDivides("hidden_size (embedding_sharding_dim 1)", config.hidden_size, tp_size));
  }
  if (!config.tied_embeddings) return Status::Ok();
  if (pp_size > 1)
    return InvalidArgument(fmt::format(
        "share_embedding_table: the table cannot be shared between the stages of pp_size {}; "
        "store it twice (use_embedding_sharing false)",
        pp_size));
  if (tp_size > 1 && (!sharding.use_parallel_embedding || sharding.embedding_sharding_dim != 0))
    return InvalidArgument(
        fmt::format("share_embedding_table: with tp_size {} it needs use_parallel_embedding and "
                    "embedding_sharding_dim 0",
                    tp_size));
  return Status::Ok();
}

Result<Sharding> ReadSharding(const nlohmann::json& json, const ModelConfig& config,
                              const std::string& where) {
  Sharding sharding;
  ASSIGN_OR_RETURN(sharding.ranks, artifact::ReadMapping(json, where));
  JsonFields fields(where, json);
  sharding.use_parallel_embedding = fields.BoolOr("use_parallel_embedding", false);
  sharding.embedding_sharding_dim =
      static_cast<int>(fields.IntOr("embedding_sharding_dim", 0, 0, 1));
  RETURN_IF_ERROR(fields.status());
  if (const Status valid = CheckSharding(config, sharding); !valid.ok())
    return valid.WithPrefix(where);
  sharding.num_layers = EvenStages(config.num_layers, sharding.ranks.pp_size);

  const nlohmann::json* ranges = fields.Find(kPipelineLayers);
  if (ranges == nullptr) return sharding;
  std::vector<int> num_layers = LayersOfRanges(*ranges, config.num_layers);
  if (num_layers.size() != sharding.num_layers.size())
    return InvalidArgument(fmt::format("{}: {}: got {}, {} ranges that tile [0, {}) are needed",
                                       where, kPipelineLayers, artifact::Abbreviate(*ranges),
                                       sharding.ranks.pp_size, config.num_layers));
  sharding.num_layers = std::move(num_layers);
  return sharding;
}

void WriteSharding(const Sharding& sharding, nlohmann::json& json) {
  json["mapping"] = artifact::MappingToJson(sharding.ranks);
  json["use_parallel_embedding"] = sharding.use_parallel_embedding;
  json["embedding_sharding_dim"] = sharding.embedding_sharding_dim;
  if (sharding.ranks.pp_size == 1) return;
  json[kPipelineLayers] = nlohmann::json::array();
  int begin = 0;
  for (const int num_layers : sharding.num_layers) {
    json[kPipelineLayers].push_back({begin, begin + num_layers});
    begin += num_layers;
  }
}

std::vector<Shard> ShardsOf(const ModelConfig& config, const Sharding& sharding,
                            const model::WeightSlot& slot) {
  const int tp_size = sharding.ranks.tp_size;
  const Place place = PlaceOf(sharding, slot.name);
  const bool is_of_rows = IsOfMatrix(slot) && slot.form.group_size == 0;  // whole rows' groups
  const Rule rule = slot.kind == model::WeightSlot::Kind::kOrder
                        ? Rule::kWhole
                        : RuleOf(sharding, slot.name, is_of_rows ? 1 : slot.shape.rank());
  const int64_t whole_rows = slot.shape[0];
  const int64_t whole_columns = slot.shape.rank() == 1 ? 1 : slot.shape[1];
  std::vector<Shard> shards;
  for (int tp_rank = 0; tp_rank < tp_size; ++tp_rank) {
    Shard shard{.rank = sharding.ranks.rank(place.stage, tp_rank),
                .name = place.name,
                .shape = {},
                .rows = {{0, whole_rows}},
                .column = 0,
                .num_columns = whole_columns};
    if (rule == Rule::kHeads) shard.rows = HeadRows(config, tp_size, tp_rank);
    if (rule == Rule::kRows && slot.num_experts > 0) {
      shard.rows = ExpertRows(slot, tp_size, tp_rank);
    } else if (rule == Rule::kRows) {
      const int64_t num_rows = (whole_rows + tp_size - 1) / tp_size;
      shard.rows = {{tp_rank * num_rows, num_rows}};
    }
    if (rule == Rule::kColumns) {
      shard.num_columns = whole_columns / tp_size;
      shard.column = tp_rank * shard.num_columns;
    }
    int64_t num_rows = 0;
    for (const RowRange& range : shard.rows) num_rows += range.num_rows;
    shard.shape = slot.shape.rank() == 1 ? Shape{num_rows} : Shape{num_rows, shard.num_columns};
    shards.push_back(std::move(shard));
  }
  return shards;
}

}  // namespace inflight::builder
