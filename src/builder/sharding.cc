// SPDX-License-Identifier: Apache-2.0
#include "builder/sharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
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

Status CheckColumns(const ModelConfig& config, const artifact::RankMapping& ranks) {
  const auto is_any = [](const model::LinearForm& form) { return ColumnsTogether(form) == 1; };
  if (ranks.tp_size == 1 || std::ranges::all_of(FormsOf(config), is_any)) return Status::Ok();
  model::DecoderWeights unused;
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused)) {
    const bool is_cut =
        slot.name.ends_with(".attention.dense.weight") || slot.name.ends_with(".mlp.proj.weight");
    const bool is_of_experts = slot.num_experts > 0 && ranks.moe_ep_size > 1;
    const int tp_size = is_of_experts ? ranks.moe_tp_size() : ranks.tp_size;
    const char* const name = is_of_experts ? "moe_tp_size" : "tp_size";
    if (!slot.is_quantized || !is_cut || tp_size == 1) continue;
    if (slot.form.has_order) continue;  // a part has groups of its own (builder/ordered_part.h)
    const int64_t part = slot.shape[1] / tp_size;
    if (part % ColumnsTogether(slot.form) != 0)
      return Unimplemented(
          fmt::format("{}: got {}, which cuts the {} columns of {} into parts of {}; with {} only "
                      "multiples of {} are supported; take fewer ranks, or widen the weights "
                      "(--quant-algo none)",
                      name, tp_size, slot.shape[1], slot.name, part, NameOfColumns(slot.form),
                      ColumnsTogether(slot.form)));
  }
  return Status::Ok();
}

// What is said of one rank's part of an expert, and of its experts.
Status CheckExperts(const ModelConfig& config, const artifact::RankMapping& ranks) {
  if (config.num_experts == 0 && ranks.moe_ep_size > 1)
    return InvalidArgument(fmt::format("moe_ep_size: got {}, {} has no experts; leave it out",
                                       ranks.moe_ep_size, config.architecture));
  if (config.num_experts == 0) return Status::Ok();
  if (config.num_experts % ranks.moe_ep_size != 0)
    return InvalidArgument(fmt::format(
        "moe_ep_size: got {}, the model has {} experts, which is no multiple of it; give a number "
        "that divides them, and moe_tp_size for the ranks that are left",
        ranks.moe_ep_size, config.num_experts));
  const int width = config.expert_intermediate_size;
  const int num_parts = ranks.moe_tp_size();
  const char* const name = ranks.moe_ep_size > 1 ? "moe_tp_size" : "tp_size";
  if (width % num_parts != 0)
    return InvalidArgument(fmt::format("{}: got {}, moe_intermediate_size {} is no multiple of it",
                                       name, num_parts, width));
  if (width / num_parts % ops::kExpertPanel == 0) return Status::Ok();
  return Unimplemented(fmt::format(
      "{}: got {}, which cuts moe_intermediate_size {} into parts of {}; only multiples of {} are "
      "supported; give a larger moe_ep_size, whose ranks hold whole experts",
      name, num_parts, width, width / num_parts, ops::kExpertPanel));
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

// Behind the others, of which the last may go on in it.
void Add(const RowRange& range, std::vector<RowRange>& rows) {
  if (range.num_rows == 0) return;
  if (!rows.empty() && rows.back().row + rows.back().num_rows == range.row)
    rows.back().num_rows += range.num_rows;
  else
    rows.push_back(range);
}

// What one rank holds of the experts' tensor: of experts [first, first + count), and of those that
// are shared, if it has them.
void CutExperts(const ModelConfig& config, const artifact::RankMapping& ranks, int tp_rank,
                bool has_shared, const model::WeightSlot& slot, Rule rule, Shard& shard) {
  const int ep_rank = tp_rank % ranks.moe_ep_size;
  const int part = tp_rank / ranks.moe_ep_size;  // of each expert
  const int num_parts = ranks.moe_tp_size();
  const int num_shared = has_shared ? config.num_shared_experts : 0;
  const ops::HeldExperts held =
      model::ExpertsOfRank(config.num_experts, num_shared, ranks.moe_ep_size, ep_rank);
  // Of each of them as many pieces, rows of both branches or the expert's own, and their part.
  const int64_t pieces = rule == Rule::kRows ? 2 : 1;
  const int64_t piece_rows = slot.shape[0] / slot.num_experts / pieces;
  const int64_t num_rows = rule == Rule::kRows ? piece_rows / num_parts : piece_rows;
  const int64_t skipped = rule == Rule::kRows ? part * num_rows : 0;
  const auto add = [&](int64_t first, int64_t count) {
    for (int64_t i = first * pieces; i < (first + count) * pieces; ++i)
      Add({i * piece_rows + skipped, num_rows}, shard.rows);
  };
  shard.num_experts = held.size();
  shard.rows.clear();
  add(held.first, held.num_routed);
  add(config.num_experts + num_shared * ep_rank / ranks.moe_ep_size, held.num_shared);
  if (rule != Rule::kColumns) return;
  shard.num_columns /= num_parts;
  shard.column = part * shard.num_columns;
}

// What one rank holds of a shared expert, which is several of the others' width: whole ones, or a
// part of one.
struct SharedPart {
  int64_t first = 0;  // of the several
  int64_t count = 1;
  int64_t offset = 0;  // in each
  int64_t size = 0;    // of each
};

// `width` is that of one of `num_shared`. CheckSharedApart has passed.
SharedPart PartOfShared(int64_t num_shared, int64_t width, int tp_size, int tp_rank) {
  const int64_t size = num_shared * width / tp_size;
  const int64_t begin = tp_rank * size;
  if (size >= width) return {.first = begin / width, .count = size / width, .size = width};
  return {.first = begin / width, .offset = begin % width, .size = size};
}

Status CheckSharedApart(const ModelConfig& config, const Sharding& sharding) {
  const int tp_size = sharding.ranks.tp_size;
  const int num_shared = config.num_shared_experts;
  const int64_t width = config.expert_intermediate_size;
  if (num_shared == 0) return Status::Ok();
  int64_t together = 1;  // columns that are not cut
  for (const model::LinearForm& form : FormsOf(config))
    together = std::lcm(together, form.group_size > 0 ? form.group_size : ColumnsTogether(form));
  const bool are_whole = num_shared % tp_size == 0;
  const bool is_part =
      tp_size % num_shared == 0 && width % (int64_t{tp_size / num_shared} * together) == 0;
  if (are_whole || is_part) return Status::Ok();
  return Unimplemented(fmt::format(
      "tp_size: got {}, which cuts a shared expert of {} times the others' width {}; in "
      "TensorRT-LLM's layout only whole ones of these and parts of one are supported, of multiples "
      "of {} columns; take another number of ranks",
      tp_size, num_shared, width, together));
}

// The tensor of a shared expert, or of its row of the router, beside `shard`, which is that of the
// other experts.
Shard SharedShard(const ModelConfig& config, int tp_size, int tp_rank,
                  const model::WeightSlot& slot, const Shard& shard) {
  Shard shared{.rank = shard.rank, .name = shard.name, .shape = {}, .is_shared = true, .rows = {}};
  const auto rename = [&](std::string_view from, std::string_view to) {
    if (const size_t at = shared.name.find(from); at != std::string::npos)
      shared.name.replace(at, from.size(), to);
  };
  rename(".mlp.router.", ".shared_expert_gate.");
  rename(".mlp.", ".shared_expert.");
  const int64_t columns = slot.shape.rank() == 1 ? 1 : slot.shape[1];
  shared.num_columns = columns;
  if (slot.is_router) {
    shared.rows = {{config.num_experts, 1}};
    shared.shape = {1, columns};
    return shared;
  }
  const int64_t rows_of_each = slot.shape[0] / slot.num_experts;
  const int64_t begin = config.num_experts * rows_of_each;
  const int64_t num_shared = config.num_shared_experts;
  if (slot.name.find(".mlp.fc.") != std::string::npos) {
    const int64_t branch = rows_of_each / 2;
    const SharedPart part = PartOfShared(num_shared, branch, tp_size, tp_rank);
    for (int64_t i = 0; i < 2 * part.count; ++i)
      Add({begin + (part.first + i % part.count) * rows_of_each + i / part.count * branch +
               part.offset,
           part.size},
          shared.rows);
    const int64_t num_rows = 2 * part.count * part.size;
    shared.shape = slot.shape.rank() == 1 ? Shape{num_rows} : Shape{num_rows, columns};
    return shared;
  }
  SharedPart part = PartOfShared(num_shared, config.expert_intermediate_size, tp_size, tp_rank);
  for (int64_t i = 0; i < part.count; ++i)
    shared.rows.push_back({begin + (part.first + i) * rows_of_each, rows_of_each});
  shared.is_side_by_side = true;
  if (columns > 1) {  // else one of a whole row, on each rank
    part = PartOfShared(num_shared, columns, tp_size, tp_rank);
    shared.column = part.offset;
    shared.num_columns = part.size;
  }
  shared.shape = {rows_of_each, shared.width()};
  return shared;
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
  if (HasDenseLayers(config))
    RETURN_IF_ERROR(CheckDivides("intermediate_size", config.intermediate_size, tp_size));
  RETURN_IF_ERROR(CheckExperts(config, sharding.ranks));
  if (config.quant_algo == model::QuantAlgo::kW4A16 && HasDenseLayers(config) &&
      config.intermediate_size / tp_size % 2 != 0)
    return Unimplemented(fmt::format(
        "tp_size: got {}, which cuts intermediate_size {} into parts of {} columns; with int4 "
        "weights only even ones are supported, use int8",
        tp_size, config.intermediate_size, config.intermediate_size / tp_size));
  RETURN_IF_ERROR(CheckColumns(config, sharding.ranks));
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

Status CheckFiles(const ModelConfig& config, const Sharding& sharding) {
  const int tp_size = sharding.ranks.tp_size;
  if (sharding.has_shared_apart) RETURN_IF_ERROR(CheckSharedApart(config, sharding));
  for (const auto& [stem, form] : config.slot_forms)
    if (tp_size > 1 && form.has_order &&
        (stem.ends_with(".attention.dense") || stem.ends_with(".mlp.proj")))
      return Unimplemented(fmt::format(
          "tp_size: got {}, columns of {} have an order (desc_act), in which a checkpoint has them "
          "for one rank; convert for one, of which build and serve make the ranks' parts, or widen "
          "the weights (--quant-algo none)",
          tp_size, stem));
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
  const bool has_shared = sharding.has_shared_apart && config.num_shared_experts > 0 &&
                          (slot.num_shared_experts > 0 || slot.is_router);
  const int64_t whole_rows = slot.is_router && has_shared ? config.num_experts : slot.shape[0];
  const int64_t whole_columns = slot.shape.rank() == 1 ? 1 : slot.shape[1];
  std::vector<Shard> shards;
  for (int tp_rank = 0; tp_rank < tp_size; ++tp_rank) {
    Shard shard{.rank = sharding.ranks.rank(place.stage, tp_rank),
                .name = place.name,
                .shape = {},
                .rows = {{0, whole_rows}},
                .column = 0,
                .num_columns = whole_columns};
    const bool is_of_experts = slot.num_experts > 0 && slot.kind != model::WeightSlot::Kind::kOrder;
    if (is_of_experts)
      CutExperts(config, sharding.ranks, tp_rank, /*has_shared=*/!has_shared, slot, rule, shard);
    if (rule == Rule::kHeads) shard.rows = HeadRows(config, tp_size, tp_rank);
    if (rule == Rule::kRows && !is_of_experts) {
      const int64_t num_rows = (whole_rows + tp_size - 1) / tp_size;
      shard.rows = {{tp_rank * num_rows, num_rows}};
    }
    if (rule == Rule::kColumns && !is_of_experts) {
      shard.num_columns = whole_columns / tp_size;
      shard.column = tp_rank * shard.num_columns;
    }
    int64_t num_rows = 0;
    for (const RowRange& range : shard.rows) num_rows += range.num_rows;
    shard.shape = slot.shape.rank() == 1 ? Shape{num_rows} : Shape{num_rows, shard.num_columns};
    shards.push_back(std::move(shard));
    if (has_shared) shards.push_back(SharedShard(config, tp_size, tp_rank, slot, shards.back()));
  }
  return shards;
}

}  // namespace inflight::builder
