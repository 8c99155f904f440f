// SPDX-License-Identifier: Apache-2.0
// The options that store weights and KV cache in fewer bits, in our and in upstream's spelling, for
// every command that has them.
#pragma once

#include <optional>
#include <string>

#include "config/schema.h"
#include "inflight/open.h"
#include "model/config.h"

namespace inflight::tool {

struct QuantizationOptions {
  std::string quant_algo = "auto";  // auto, none or a name of QuantAlgo
  std::optional<int> group_size;
  bool use_weight_only = false;
  std::optional<std::string> weight_only_precision;
  bool use_fp8_rowwise = false;
  std::string kv_cache_dtype = "auto";  // auto, fp8
  bool fp8_kv_cache = false;
  bool quantize_lm_head = false;
  // Of convert and build alone.
  std::string qformat;
  bool enable_fp8 = false;

  // Empty where quantisation was not asked for: the model's own then. kInvalidArgument where the
  // spellings contradict each other.
  Result<std::optional<model::QuantAlgo>> Algo() const;
  // Empty where it was not asked for, too. Beside an algorithm without groups the default is no
  // wish: upstream's scripts spell it out. kInvalidArgument for another size there.
  Result<std::optional<int>> GroupSize() const;
  // What was asked for; errors of Algo and GroupSize.
  Status SetIn(OpenOptions& open) const;
  // Empty where they were not asked for.
  std::optional<bool> Fp8KvCache() const;
  std::optional<bool> QuantizeLmHead() const;
};

// Declares them in `schema`; `field` finds them in Options.
template <typename Options, typename Field>
void AddQuantization(config::Schema<Options>& schema, const Field& field) {
  schema.Add(
      "quant_algo", [field](Options& o) -> auto& { return field(o).quant_algo; },
      "How the linears of the layers are stored: W8A16 in int8, W4A16 in int4, "
      "FP8_PER_CHANNEL_PER_TOKEN in float8_e4m3fn (NVIDIA GPUs only), each with a scale per output "
      "channel; W8A16_GPTQ and W4A16_GPTQ in int8 and int4 with a scale per group of columns; auto "
      "is the model's own, none widens what is quantised.",
      config::OneOf({"auto", "none", "W8A16", "W4A16", "W8A16_GPTQ", "W4A16_GPTQ",
                     "FP8_PER_CHANNEL_PER_TOKEN"}));
  schema.Add(
      "group_size", [field](Options& o) -> auto& { return field(o).group_size; },
      "Columns of a group of quant_algo W8A16_GPTQ and W4A16_GPTQ, a multiple of 16; 128 of a "
      "model "
      "that is quantised with them and says nothing else.",
      config::Range(16, 1 << 17));
  schema.Add(
      "use_weight_only", [field](Options& o) -> auto& { return field(o).use_weight_only; },
      "quant_algo W8A16, or W4A16 by weight_only_precision. The CPU rounds activations to int8, a "
      "scale per token.",
      config::Switch());
  schema.Add(
      "weight_only_precision",
      [field](Options& o) -> auto& { return field(o).weight_only_precision; },
      "Of use_weight_only; int8 where it is not given. int4_gptq is not supported.",
      config::OneOf({"int8", "int4"}));
  schema.Add(
      "use_fp8_rowwise", [field](Options& o) -> auto& { return field(o).use_fp8_rowwise; },
      "quant_algo FP8_PER_CHANNEL_PER_TOKEN. Activations are rounded to float8_e4m3fn too, a scale "
      "per token.",
      config::Switch());
  schema.Add(
      "kv_cache_dtype", [field](Options& o) -> auto& { return field(o).kv_cache_dtype; },
      "fp8 keeps keys and values in float8_e4m3fn with a scale of 1 (NVIDIA GPUs only); auto is "
      "the "
      "model's own.",
      config::OneOf({"auto", "fp8"}));
  schema.Add(
      "fp8_kv_cache", [field](Options& o) -> auto& { return field(o).fp8_kv_cache; },
      "kv_cache_dtype fp8.", config::Switch());
  schema.Add(
      "quantize_lm_head", [field](Options& o) -> auto& { return field(o).quantize_lm_head; },
      "The output layer in fewer bits too: beside quant_algo FP8_PER_CHANNEL_PER_TOKEN in "
      "float8_e4m3fn, not of models whose lm_head is their embedding table; beside int8 and int4 "
      "weights in int8, on the CPU that table with it.",
      config::Switch());
}

// And those of upstream's quantize.py and build.py.
template <typename Options, typename Field>
void AddQuantizationOfUpstream(config::Schema<Options>& schema, const Field& field) {
  AddQuantization(schema, field);
  schema.Add(
      "qformat", [field](Options& o) -> auto& { return field(o).qformat; },
      "As in quantize.py: fp8 and fp8_pc_pt are quant_algo FP8_PER_CHANNEL_PER_TOKEN, int8_wo is "
      "W8A16, int4_wo is W4A16.",
      config::OneOf({"", "full_prec", "fp8", "fp8_pc_pt", "int8_wo", "int4_wo"}));
  schema.Add(
      "enable_fp8", [field](Options& o) -> auto& { return field(o).enable_fp8; },
      "As in build.py: use_fp8_rowwise.", config::OptionalValue());
}

}  // namespace inflight::tool
