// SPDX-License-Identifier: Apache-2.0
// How the tensors of a model are split over the ranks of a checkpoint (docs/reference/artifacts.md,
// "Ranks"). One description serves writing the shards and merging them back:
//
//   qkv                 rows: the rank's query heads, then its key heads, then its value heads;
//                       with fewer kv heads than ranks, consecutive ranks hold the same head
//   mlp.fc, mlp.gate    rows / tp_size, their biases too
//   dense, mlp.proj     columns / tp_size, between groups, whose scales and offsets are cut alike;
//                       scales of whole rows, and biases, whole on every rank, biases added once;
//                       of columns in an order of their own as builder/ordered_part.h says
//   experts             of those that the rank holds (model::ExpertsOfRank) the same / moe_tp_size,
//                       rows of both branches of each
//   a shared expert     as further experts behind those; or apart, as upstream has it: rows of both
//                       branches, then columns / tp_size, and its row of the router on every rank
//   norms, positions    whole on every rank of their stage
//   vocab_embedding     whole, or with use_parallel_embedding rows (dim 0) or columns (dim 1)
//                       / tp_size
//   lm_head             rows / tp_size
//
// Tables that are split by rows are padded with zeros to a multiple of tp_size.
// Layers are contiguous per stage and counted from 0 in each; the embedding and positions lie on
// the first stage, the final norm and the head on the last.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "artifact/checkpoint.h"
#include "model/config.h"
#include "model/weight_slots.h"

namespace inflight::builder {

// Key of config.json with the half-open range of layers of each stage; written with several stages.
inline constexpr char kPipelineLayers[] = "pipeline_layers";

struct Sharding {
  artifact::RankMapping ranks;
  bool use_parallel_embedding = false;
  int embedding_sharding_dim = 0;    // 0: vocabulary, 1: hidden
  std::vector<int> num_layers = {};  // [pp_size] of each stage
  bool has_shared_apart = false;     // a shared expert has tensors of its own
};

// Layers of each stage: equal numbers, what is left over on the first ones.
std::vector<int> EvenStages(int num_layers, int pp_size);

// Checks that the model divides as the mapping asks, and that a shared embedding table is laid out
// as it may be. Errors name the option, its value and the dimension.
Status CheckSharding(const model::ModelConfig& config, const Sharding& sharding);

// Whether a checkpoint holds such a model: not columns that ranks share in an order of their own,
// and not parts of a shared expert that are no whole ones of the others' width, nor parts of one;
// which kUnimplemented names.
Status CheckFiles(const model::ModelConfig& config, const Sharding& sharding);

// The fields of a checkpoint's config.json that describe the sharding: mapping,
// use_parallel_embedding, embedding_sharding_dim, kPipelineLayers (EvenStages where it is absent).
// Reading checks them against `config`.
Result<Sharding> ReadSharding(const nlohmann::json& json, const model::ModelConfig& config,
                              const std::string& where);
void WriteSharding(const Sharding& sharding, nlohmann::json& json);

// Consecutive rows of a whole tensor. Rows past its end are padding: zeros.
struct RowRange {
  int64_t row = 0;
  int64_t num_rows = 0;
};

// What one rank's file holds of a tensor.
struct Shard {
  int rank = 0;
  std::string name;            // in the rank's file
  Shape shape;                 // there
  int num_experts = 0;         // that it holds, as of WeightSlot
  bool is_shared = false;      // of a shared expert that stands apart
  std::vector<RowRange> rows;  // in the order of the stored rows; or, equally many, side by side
  bool is_side_by_side = false;
  int64_t column = 0;       // of the whole tensor; a vector has one column
  int64_t num_columns = 1;  // of each of `rows`

  int64_t width() const { return is_side_by_side ? num_columns * std::ssize(rows) : num_columns; }
};

// The shards of `slot`, by ascending rank. `sharding` has passed CheckSharding.
std::vector<Shard> ShardsOf(const model::ModelConfig& config, const Sharding& sharding,
                            const model::WeightSlot& slot);

}  // namespace inflight::builder
