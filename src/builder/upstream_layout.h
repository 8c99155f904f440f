// SPDX-License-Identifier: Apache-2.0
// Quantised linears as TensorRT-LLM's own tools write and read them, in layouts that fit every GPU
// (docs/reference/artifacts.md, "Upstream's forms"):
//
//   of the model here                                      there
//   W8A16, W4A16 of float weights                          the same, of float weights
//   W8A16 of int8 weights, no experts                      W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN
//   W4A16_GPTQ, W4A16 of int4 weights                      W4A16_AWQ without factors of columns
//   FP8_PER_CHANNEL_PER_TOKEN whose linears, or each       FP8
//   expert's, have one scale, and one of their activations
//   FP8_PER_CHANNEL_PER_TOKEN, no experts                  the same
//   weights that are plain                                 the same
//
// No number is lost on the way: codes and scales are those of the model, and zero points, which
// stand as offsets of the model's dtype, are found again by their scales.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "builder/sharding.h"
#include "builder/weight_source.h"
#include "tensor/cpu_pool.h"

namespace inflight::builder {

enum class UpstreamForm : uint8_t { kAsHere, kFloats, kSmoothQuant, kAwq, kFp8 };

struct UpstreamLayout {
  UpstreamForm form = UpstreamForm::kAsHere;
  int64_t group_size = 0;  // of kAwq: columns of each linear's groups
  bool has_zeros = false;  // of kAwq: whether each linear has offsets
};

// The layout that `source` has there, on such ranks. kUnimplemented says what of the model has
// none.
Result<UpstreamLayout> UpstreamLayoutOf(const WeightSource& source,
                                        const artifact::RankMapping& ranks);

// `config`, whose slots are those that files of the form hold: of kFloats without codes.
model::ModelConfig SlotConfigOf(UpstreamForm form, model::ModelConfig config);

// config.json of such a checkpoint, without its sharding.
nlohmann::json UpstreamConfig(const UpstreamLayout& layout, const model::ModelConfig& config);

// A tensor of one rank's file.
struct RankTensor {
  enum class Kind : uint8_t {
    kRows,      // rows of `slot`
    kRowPairs,  // of int4: a byte has two rows of a column, as of RowPairsOf
    kScales,    // of groups: float32, each column of `slot` several times
    kOffsets,   // likewise, turned around: [groups, rows] of the model's dtype. Of a slot that is
                // scales they are 0
    kValues,    // `values`, float32
  };
  Shard shard;             // of kValues its name and shape alone
  model::WeightSlot slot;  // that it is a shard of; none of kValues
  Kind kind = Kind::kRows;
  std::vector<float> values = {};  // of kValues
};

// Makes a rank's tensors those of the layout. kUnimplemented names one whose rows make no pairs.
Status SetUpstreamLayout(const UpstreamLayout& layout, const WeightSource& source,
                         std::vector<RankTensor>& tensors);

// What a file holds of `tensor`.
artifact::TensorSpec SpecOf(const WeightSource& source, const RankTensor& tensor);

// All of a tensor of kScales or kOffsets.
std::vector<std::byte> GroupBytes(const WeightSource& source, const RankTensor& tensor);

// Rows of int4, two columns a byte, as bytes of two rows each: [rows / 2, columns], rows 2j in the
// low bits. Both numbers are even.
std::vector<std::byte> RowPairsOf(std::span<const std::byte> rows, int64_t num_columns,
                                  CpuPool& pool);

}  // namespace inflight::builder
