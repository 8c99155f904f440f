// SPDX-License-Identifier: Apache-2.0
#include "builder/rank_source.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "builder/ordered_part.h"

namespace inflight::builder {
namespace {

// Rows and columns of `whole` that `shard` names, as a tensor of its own.
WeightRecipe Cut(const WeightRecipe& whole, const Shard& shard) {
  WeightRecipe cut{.shape = shard.shape, .parts = {}, .added = whole.added};
  const int64_t right = shard.column + shard.num_columns;
  int64_t row = 0;
  for (const RowRange& range : shard.rows) {
    cut.is_padded = cut.is_padded || range.row + range.num_rows > whole.shape[0];
    for (const WeightPart& part : whole.parts) {
      const int64_t top = std::max(range.row, part.row);
      const int64_t bottom = std::min(range.row + range.num_rows, part.row + part.num_rows);
      const int64_t left = std::max(shard.column, part.column);
      const int64_t end = std::min(right, part.column + part.num_columns);
      if (top >= bottom || left >= end) continue;
      WeightPart kept = part;
      kept.stored_row += (top - part.row) * part.row_step;
      kept.stored_column += left - part.column;
      kept.row = row + top - range.row;
      kept.num_rows = bottom - top;
      kept.column = left - shard.column;
      kept.num_columns = end - left;
      cut.parts.push_back(kept);
    }
    row += range.num_rows;
  }
  return cut;
}

}  // namespace

void Untie(model::ModelConfig& config) {
  config.tied_embeddings = false;
  const auto form = config.slot_forms.find(model::kEmbeddingStem);
  if (form != config.slot_forms.end())
    config.slot_forms.emplace(model::kHeadStem, model::LinearForm(form->second));
}

std::string TiedName(std::string_view name) {
  const std::string_view stem = name.substr(0, name.rfind('.'));
  if (stem != model::kHeadStem || name.ends_with(".bias")) return std::string(name);
  return std::string(model::kEmbeddingStem) + std::string(name.substr(stem.size()));
}

Result<Sharding> DivideOver(const artifact::RankMapping& ranks, WeightSource& source) {
  model::ModelConfig& config = source.config;
  // What a stage reads of the table, another one may read as the head.
  if (config.tied_embeddings && ranks.pp_size > 1) {
    model::DecoderWeights unused;
    Untie(config);
    for (const model::WeightSlot& slot : model::WeightSlots(config, unused)) {
      const auto table = source.recipes.find(TiedName(slot.name));
      if (table == source.recipes.end()) continue;  // scales that quantising makes
      if (table->first != slot.name) source.recipes[slot.name] = WeightRecipe(table->second);
    }
  }
  Sharding sharding{.ranks = ranks, .use_parallel_embedding = true};
  RETURN_IF_ERROR(CheckSharding(config, sharding));
  sharding.num_layers = EvenStages(config.num_layers, ranks.pp_size);
  return sharding;
}

namespace {

// On CPUs the leader drafts, on GPUs every rank of the last stage.
bool HasHeads(const artifact::RankMapping& ranks, int rank, DeviceKind target) {
  return target == DeviceKind::kCuda ? rank / ranks.tp_size == ranks.pp_size - 1 : rank == 0;
}

}  // namespace

model::ModelConfig ConfigOfRank(model::ModelConfig config, const Sharding& sharding, int rank,
                                DeviceKind target) {
  const artifact::RankMapping& ranks = sharding.ranks;
  SetFormsOfOrderedParts(ranks, config);
  model::RankPart& part = config.part;
  part = {.tp_rank = rank % ranks.tp_size,
          .tp_size = ranks.tp_size,
          .pp_rank = rank / ranks.tp_size,
          .pp_size = ranks.pp_size,
          .moe_ep_size = ranks.moe_ep_size,
          .num_layers = config.num_layers,
          .num_kv_heads = config.num_kv_heads,
          .stage_layers = sharding.num_layers,
          .heads_are_last = target == DeviceKind::kCuda};
  for (int stage = 0; stage < part.pp_rank; ++stage)
    part.first_layer += sharding.num_layers[static_cast<size_t>(stage)];
  config.num_layers = sharding.num_layers[static_cast<size_t>(part.pp_rank)];
  config.num_heads /= ranks.tp_size;
  config.num_kv_heads = std::max(config.num_kv_heads / ranks.tp_size, 1);
  config.intermediate_size /= ranks.tp_size;
  config.expert_intermediate_size /= ranks.moe_tp_size();
  if (!part.heads_are_last && !HasHeads(ranks, rank, target)) config.num_medusa_heads = 0;
  return config;
}

Status TakeRank(const Sharding& sharding, int rank, DeviceKind target, WeightSource& source) {
  const int tp_size = sharding.ranks.tp_size;
  std::unordered_map<std::string, WeightRecipe> recipes;
  model::DecoderWeights unused;
  for (const model::WeightSlot& slot : model::WeightSlots(source.config, unused)) {
    const auto whole = source.recipes.find(slot.name);
    if (whole == source.recipes.end()) continue;  // scales that quantising makes
    if (slot.name.starts_with(model::kMedusaHeads)) {
      if (HasHeads(sharding.ranks, rank, target)) recipes.emplace(slot.name, whole->second);
      continue;
    }
    for (const Shard& shard : ShardsOf(source.config, sharding, slot)) {
      if (shard.rank != rank) continue;
      if (tp_size == 1 || !IsOrderedByColumns(slot)) {
        recipes.emplace(shard.name, Cut(whole->second, shard));
        continue;
      }
      ASSIGN_OR_RETURN(WeightRecipe part,
                       OrderedPart(slot, sharding.ranks, rank % tp_size, source));
      recipes.emplace(shard.name, std::move(part));
    }
  }
  source.recipes = std::move(recipes);
  source.config = ConfigOfRank(std::move(source.config), sharding, rank, target);
  return Status::Ok();
}

}  // namespace inflight::builder
