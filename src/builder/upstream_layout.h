// SPDX-License-Identifier: Apache-2.0
// Quantised linears as TensorRT-LLM's own tools write and read them, in layouts that fit every GPU
// (docs/reference/artifacts.md, "Upstream's forms"):
//
//   of the model here                                      there
//   W8A16, W4A16 of float weights                          the same, of float weights
//   W8A16 of int8 weights                                  W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN
//   W4A16_GPTQ without zero points                         W4A16_AWQ without factors of columns
//   FP8_PER_CHANNEL_PER_TOKEN whose linears have one       FP8
//   scale each, and one of their activations
//   FP8_PER_CHANNEL_PER_TOKEN, weights that are plain      the same
//
// No number is rounded on the way: codes and scales are those of the model.
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

// The form that `source` has there, of `pp_size` stages. kUnimplemented says what of the model has
// none.
Result<UpstreamForm> UpstreamFormOf(const WeightSource& source, int pp_size);

// `config`, whose slots are those that files of the form hold: of kFloats without codes.
model::ModelConfig SlotConfigOf(UpstreamForm form, model::ModelConfig config);

// config.json of such a checkpoint, without its sharding.
nlohmann::json UpstreamConfig(UpstreamForm form, const model::ModelConfig& config);

// A tensor of one rank's file.
struct RankTensor {
  Shard shard;                     // of `values` its name and shape alone
  model::WeightSlot slot;          // that it is a shard of; none of `values`
  bool has_row_pairs = false;      // int4: a byte has two rows of a column, as of RowPairsOf
  std::vector<float> values = {};  // not empty: its elements, float32
};

// Makes a rank's tensors those of the form. kUnimplemented names one whose rows make no pairs.
Status SetUpstreamForm(UpstreamForm form, const WeightSource& source,
                       std::vector<RankTensor>& tensors);

// Rows of int4, two columns a byte, as bytes of two rows each: [rows / 2, columns], rows 2j in the
// low bits. Both numbers are even.
std::vector<std::byte> RowPairsOf(std::span<const std::byte> rows, int64_t num_columns,
                                  CpuPool& pool);

}  // namespace inflight::builder
