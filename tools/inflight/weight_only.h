// SPDX-License-Identifier: Apache-2.0
// The options that quantise weights alone, in upstream's spelling, for every command that has them.
#pragma once

#include <optional>
#include <string>

#include "config/schema.h"
#include "model/config.h"

namespace inflight::tool {

struct WeightOnlyOptions {
  bool use_weight_only = false;
  std::optional<std::string> weight_only_precision;

  // Empty where quantisation was not asked for: the model's own then.
  Result<std::optional<model::QuantAlgo>> Algo() const;
};

// Declares them in `schema`; `field` finds them in Options.
template <typename Options, typename Field>
void AddWeightOnly(config::Schema<Options>& schema, const Field& field) {
  schema.Add(
      "use_weight_only", [field](Options& o) -> auto& { return field(o).use_weight_only; },
      "Store the linears of the layers in fewer bits, a scale per output channel. The CPU then "
      "rounds activations to int8, a scale per token.",
      config::Switch());
  schema.Add(
      "weight_only_precision",
      [field](Options& o) -> auto& { return field(o).weight_only_precision; },
      "Of use_weight_only; int8 where it is not given. int4 and int4_gptq are not built.",
      config::OneOf({"int8"}));
}

}  // namespace inflight::tool
