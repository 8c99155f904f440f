// SPDX-License-Identifier: Apache-2.0
#include "weight_only.h"

namespace inflight::tool {

Result<std::optional<model::QuantAlgo>> WeightOnlyOptions::Algo() const {
  if (use_weight_only) return std::optional(model::QuantAlgo::kW8A16);
  if (weight_only_precision)
    return InvalidArgument("--weight-only-precision: got '" + *weight_only_precision +
                           "', needs --use-weight-only");
  return std::optional<model::QuantAlgo>();
}

}  // namespace inflight::tool
