// SPDX-License-Identifier: Apache-2.0
// How the weights of linears are stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"
#include "tensor/scale_blocks.h"

namespace inflight::model {

// How the weights of the layers' linears are stored; the names are those of "quant_algo" in
// checkpoints. Norms and biases keep the model's dtype; so do the embedding table, and lm_head but
// for quantize_lm_head, unless kMixedPrecision gives them a form.
enum class QuantAlgo : uint8_t {
  kNone,
  kW8A16,                  // int8, a scale per output channel
  kW4A16,                  // int4, likewise
  kW8A16Gptq,              // int8 in groups of columns, a scale for each group of a row
  kW4A16Gptq,              // int4, likewise
  kFp8PerChannelPerToken,  // e4m3, a scale per output channel; activations e4m3, a scale per token.
                           // CUDA only
  kMixedPrecision,         // each linear has a form of its own (ModelConfig::slot_forms)
};
std::string_view QuantAlgoName(QuantAlgo algo);  // "W8A16"; empty for kNone
// "W4A16_AWQ" is kW4A16Gptq: what differs is what its scales were chosen by.
std::optional<QuantAlgo> QuantAlgoFromName(std::string_view name);
bool HasGroups(QuantAlgo algo);  // kW8A16Gptq and kW4A16Gptq

// Groups of a model that is quantised here where nothing else is said.
inline constexpr int kDefaultGroupSize = 128;
// Groups of MXFP4, and of FP8.
inline constexpr int kMxGroupSize = 32;
inline constexpr int kFp8GroupSize = 128;

// The weight of one linear: element k of row n stands for
//
//   code                                          of the model's dtypes
//   code * scale[n]                               of int8, int4 and float8_e4m3fn
//   code * scale[n, g] + offset[n, g]             of int8 and int4 in groups, g = k / group_size
//   code * scale[n, g]                            of float8_e4m3fn in groups
//   code * 2^(exponent[n, g] - 127)               of float4_e2m1fn in groups (MXFP4)
struct LinearForm {
  DType dtype = DType::kF32;
  int group_size = 0;        // columns of a group; 0: all of a row's
  bool has_offsets = false;  // else they are 0
  ScaleBlocks blocks = {};   // of groups: how scales and offsets are stored
  bool has_order = false;    // of groups: columns are in an order of their own (ops::Weight)
  // Of one rank's part of an order: columns of its rows, more than x has (ops::Weight::num_inputs);
  // 0: as many as x has.
  int columns = 0;

  bool is_quantized() const;
  bool is_grouped_fp8() const { return dtype == DType::kF8E4M3 && group_size > 0; }
  // Whether scales are [out, groups], not one for each row: float32, of float4 uint8. In blocks
  // they are uint8, [out, bytes].
  bool has_groups() const { return group_size > 0 || has_offsets; }
  // Of a linear that reads so many.
  int64_t NumColumns(int64_t in_features) const { return columns == 0 ? in_features : columns; }
  int64_t NumGroups(int64_t in_features) const {
    return group_size == 0 ? 1 : in_features / group_size;
  }
  // Of a row's scales, and of its offsets: groups, or bytes of blocks.
  int64_t NumScales(int64_t in_features) const {
    const int64_t num_groups = NumGroups(in_features);
    return blocks.empty() ? num_groups : num_groups / blocks.groups * blocks.num_bytes();
  }
  bool operator==(const LinearForm&) const = default;
};

}  // namespace inflight::model
