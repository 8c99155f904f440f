// SPDX-License-Identifier: Apache-2.0
#include "model/supported.h"

#include <fmt/format.h>

#include <string>

#include "base/status_macros.h"
#include "model/decoder.h"
#include "ops/backend.h"

namespace inflight::model {
namespace {

struct Row {
  std::string_view field;
  bool is_supported;
  std::string value;
  std::string_view supported;
  std::string_view remedy;
};

}  // namespace

BackendFacts FactsOf(DeviceKind device) {
  if (device == DeviceKind::kCuda)
    return {.name = "cuda", .has_fp8 = true, .has_all_grouped_fp8 = true};
  return {.name = "cpu",
          .has_all_of_float32 = true,
          .has_all_experts = true,
          .has_column_order = true,
          .has_scale_blocks = true,
          .has_integer_tables = true};
}

void SetHead(ModelConfig& config, std::optional<bool> quantize_lm_head,
             const BackendFacts& backend) {
  if (quantize_lm_head.value_or(false))
    QuantizeHead(config, backend.has_integer_tables);
  else
    config.quantize_lm_head = quantize_lm_head.value_or(config.quantize_lm_head);
}

Status CheckSupported(const ModelConfig& c, const BackendFacts& backend) {
  const bool is_fp8 = c.quant_algo == QuantAlgo::kFp8PerChannelPerToken;
  const bool is_any_float32 = backend.has_all_of_float32 || c.dtype != DType::kF32;
  const Row rows[] = {
      {"quant_algo", is_any_float32 || c.quant_algo == QuantAlgo::kNone,
       fmt::format("{} beside dtype float32", QuantAlgoName(c.quant_algo)),
       "float32 beside weights in float32", "use --dtype bfloat16, or --quant-algo none"},
      {"kv_cache_quant_algo", is_any_float32 || !c.fp8_kv_cache, "FP8 beside dtype float32",
       "float32 beside a KV cache in float32", "use --dtype bfloat16, or --kv-cache-dtype auto"},
      {"quant_algo", backend.has_fp8 || !is_fp8, std::string(QuantAlgoName(c.quant_algo)),
       "weights in float32, bfloat16, float16, int8 and int4", "use cuda, or --use-weight-only"},
      {"quantized_layers",
       backend.has_all_grouped_fp8 || c.dtype == DType::kBF16 || !HasGroupedFp8(c),
       fmt::format("FP8 in groups beside dtype {}", DTypeName(c.dtype)),
       "FP8 in groups beside bfloat16",
       "use --dtype bfloat16, or convert the model again with --quant-algo none"},
      {"kv_cache_quant_algo", backend.has_fp8 || !c.fp8_kv_cache, "FP8",
       "a KV cache of the model's dtype", "use cuda, or --kv-cache-dtype auto"},
      {"quant_algo", backend.has_all_experts || !HasExpertsToWiden(c),
       std::string(QuantAlgoName(c.quant_algo)),
       "experts in int8 and int4 whose rows are multiples of 64 and 128, in groups of a power of "
       "two",
       "use another --group-size, --use-fp8-rowwise, leave weights in the model's dtype "
       "(--quant-algo none), or use cpu"},
      {"quantized_layers", backend.has_integer_tables || !HasQuantizedEmbedding(c),
       "an embedding table of integers", "one of the model's dtype",
       "convert the model again with --quant-algo none, or use cpu"},
      {"desc_act", backend.has_column_order || !HasColumnOrder(c), "true",
       "groups of columns in their order",
       "convert the model again with --quant-algo none, or use cpu"},
      {"scale_blocks", backend.has_scale_blocks || !HasScaleBlocks(c), "blocks of scales",
       "scales that are float32", "build the engine for this target, or use cpu"},
  };
  for (const Row& row : rows)
    if (!row.is_supported)
      return Unimplemented(fmt::format("{}: got {} for target {}, which supports {}; {}", row.field,
                                       row.value, backend.name, row.supported, row.remedy));
  return CheckRanks(c, c.part.tp_size * c.part.pp_size, backend);
}

Status CheckRanks(const ModelConfig& config, int num_ranks, const BackendFacts& backend) {
  if (num_ranks == 1 || backend.has_all_of_float32 || config.dtype != DType::kF32)
    return Status::Ok();
  return Unimplemented(
      fmt::format("dtype: got float32 on {} ranks for target {}, whose ranks add up bfloat16 and "
                  "float16; use --dtype bfloat16, one rank, or cpu",
                  num_ranks, backend.name));
}

Status CheckRuns(const ModelConfig& config, const Device& device) {
  RETURN_IF_ERROR(ops::CheckRunnable(device, KernelShape(config)));
  return CheckSupported(config, FactsOf(device.kind()));
}

}  // namespace inflight::model
