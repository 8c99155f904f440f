// SPDX-License-Identifier: Apache-2.0
#include "quantization_options.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace inflight::tool {

Result<std::optional<model::QuantAlgo>> QuantizationOptions::Algo() const {
  using enum model::QuantAlgo;
  if (weight_only_precision && !use_weight_only)  // as upstream's tools, whose scripts spell out
                                                  // the default
    logging::Warning("--weight-only-precision has no effect without --use-weight-only");
  std::optional<model::QuantAlgo> algo;
  const char* from = nullptr;  // the option that said it
  Status status;
  const auto ask = [&](bool is_asked, const char* option, model::QuantAlgo asked) {
    if (!is_asked) return;
    if (algo && *algo != asked)
      status = InvalidArgument(std::string(option) + ": contradicts " + from +
                               "; leave one of them out");
    algo = asked;
    from = option;
  };
  if (quant_algo != "auto")
    ask(true, "--quant-algo",
        quant_algo == "none" ? kNone : model::QuantAlgoFromName(quant_algo).value_or(kNone));
  ask(use_weight_only, "--use-weight-only", weight_only_precision == "int4" ? kW4A16 : kW8A16);
  ask(use_fp8_rowwise, "--use-fp8-rowwise", kFp8PerChannelPerToken);
  ask(enable_fp8, "--enable-fp8", kFp8PerChannelPerToken);
  ask(qformat == "full_prec", "--qformat", kNone);
  ask(qformat == "int8_wo", "--qformat", kW8A16);
  ask(qformat == "int4_wo", "--qformat", kW4A16);
  ask(qformat.starts_with("fp8"), "--qformat", kFp8PerChannelPerToken);
  RETURN_IF_ERROR(status);
  return algo;
}

Result<std::optional<int>> QuantizationOptions::GroupSize() const {
  ASSIGN_OR_RETURN(const std::optional<model::QuantAlgo> algo, Algo());
  if (!group_size || (algo && HasGroups(*algo))) return group_size;
  if (*group_size == model::kDefaultGroupSize) return std::optional<int>();
  if (!algo) return group_size;  // the model's own algorithm says whether it fits
  return InvalidArgument("--group-size: got " + std::to_string(*group_size) +
                         ", only beside --quant-algo W4A16_GPTQ and W8A16_GPTQ");
}

Status QuantizationOptions::SetIn(OpenOptions& open) const {
  ASSIGN_OR_RETURN(const std::optional<model::QuantAlgo> algo, Algo());
  if (algo) open.quant_algo = *algo == model::QuantAlgo::kNone ? "none" : QuantAlgoName(*algo);
  ASSIGN_OR_RETURN(open.group_size, GroupSize());
  open.fp8_kv_cache = Fp8KvCache();
  open.quantize_lm_head = QuantizeLmHead();
  return Status::Ok();
}

std::optional<bool> QuantizationOptions::Fp8KvCache() const {
  if (fp8_kv_cache || kv_cache_dtype == "fp8") return true;
  return std::nullopt;
}

std::optional<bool> QuantizationOptions::QuantizeLmHead() const {
  if (quantize_lm_head) return true;
  return std::nullopt;
}

}  // namespace inflight::tool
