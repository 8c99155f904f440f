// SPDX-License-Identifier: Apache-2.0
#include "model/supported.h"

#include <fmt/format.h>

#include <string>

#include "base/status_macros.h"
#include "model/decoder.h"
#include "ops/backend.h"

namespace inflight::model {
namespace {

constexpr std::string_view kUseCpu = "use cpu";

struct Row {
  std::string_view field;
  bool is_supported;
  std::string value;
  std::string_view supported;
  std::string_view remedy;
};

std::string_view NameOf(NormPlacement placement) {
  switch (placement) {
    case NormPlacement::kPre:
      return "pre";
    case NormPlacement::kPost:
      return "post";
    case NormPlacement::kBoth:
      return "both";
  }
  return "";
}

}  // namespace

BackendFacts FactsOf(DeviceKind device) {
  if (device == DeviceKind::kCuda)
    return {.name = "cuda", .has_float32 = false, .has_fp8 = true, .has_variants = false};
  return {.name = "cpu", .has_float32 = true, .has_fp8 = false, .has_variants = true};
}

Status CheckSupported(const ModelConfig& c, const BackendFacts& backend) {
  const bool is_fp8 = c.quant_algo == QuantAlgo::kFp8PerChannelPerToken;
  const bool has_all = backend.has_variants;
  const Row rows[] = {
      {"dtype", backend.has_float32 || c.dtype != DType::kF32, "float32", "bfloat16 and float16",
       "leave the option out for bfloat16"},
      {"quant_algo", backend.has_fp8 || !is_fp8, std::string(QuantAlgoName(c.quant_algo)),
       "weights in float32, bfloat16, float16, int8 and int4", "use cuda, or --use-weight-only"},
      {"kv_cache_quant_algo", backend.has_fp8 || !c.fp8_kv_cache, "FP8",
       "a KV cache of the model's dtype", "use cuda, or --kv-cache-dtype auto"},
      {"norm_placement", has_all || c.norm_placement == NormPlacement::kPre,
       std::string(NameOf(c.norm_placement)), "pre", kUseCpu},
      {"parallel_residual", has_all || !c.parallel_residual,
       "attention and feed-forward beside each other", "one behind the other", kUseCpu},
      {"lm_head.bias", has_all || !c.head_bias, "a bias", "none", kUseCpu},
      {"embedding_scale", has_all || EmbeddingScale(c) == 1, fmt::to_string(EmbeddingScale(c)), "1",
       kUseCpu},
      {"residual_multiplier", has_all || c.residual_multiplier == 1,
       fmt::to_string(c.residual_multiplier), "1", kUseCpu},
      {"attention_softcap", has_all || c.attention_softcap == 0,
       fmt::to_string(c.attention_softcap), "none", kUseCpu},
      {"attention.sinks", has_all || !c.has_attention_sinks, "a logit of each head", "none",
       kUseCpu},
      {"logits_softcap", has_all || c.logits_softcap == 0, fmt::to_string(c.logits_softcap), "none",
       kUseCpu},
      {"logits_scaling", has_all || c.logits_scale == 1, fmt::to_string(1 / c.logits_scale), "1",
       kUseCpu},
      {"no_rope_layers", has_all || c.rope_layers.empty(), "layers without positions", "none",
       kUseCpu},
      {"qk_layernorm", has_all || !c.has_wide_qk_norm, "norms of all heads together",
       "norms of each head", kUseCpu},
      {"quant_algo", has_all || c.num_experts == 0 || is_fp8 || c.quant_algo == QuantAlgo::kNone,
       std::string(QuantAlgoName(c.quant_algo)), "experts in bfloat16, float16 and FP8",
       "use --use-fp8-rowwise, leave weights in the model's dtype, or use cpu"},
      {"rope_local_base_freq", has_all || !c.sliding_rope_theta,
       fmt::to_string(c.sliding_rope_theta.value_or(0)), "rope_theta for all layers", kUseCpu},
  };
  for (const Row& row : rows)
    if (!row.is_supported)
      return Unimplemented(fmt::format("{}: got {} for target {}, which supports {}; {}", row.field,
                                       row.value, backend.name, row.supported, row.remedy));
  return Status::Ok();
}

Status CheckRuns(const ModelConfig& config, const Device& device) {
  RETURN_IF_ERROR(ops::CheckRunnable(device, KernelShape(config)));
  return CheckSupported(config, FactsOf(device.kind()));
}

}  // namespace inflight::model
