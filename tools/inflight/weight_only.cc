// SPDX-License-Identifier: Apache-2.0
#include "weight_only.h"

#include "base/log.h"

namespace inflight::tool {

Result<std::optional<model::QuantAlgo>> WeightOnlyOptions::Algo() const {
  if (use_weight_only) return std::optional(model::QuantAlgo::kW8A16);
  if (weight_only_precision)  // as upstream's tools, whose scripts spell out the default
    logging::Warning("--weight-only-precision has no effect without --use-weight-only");
  return std::optional<model::QuantAlgo>();
}

}  // namespace inflight::tool
