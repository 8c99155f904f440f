// SPDX-License-Identifier: Apache-2.0
#include "parameter_flags.h"

#include <algorithm>

#include "base/check.h"
#include "parameters/parameters.h"

namespace inflight::tool {

config::Constraint BoundsOf(std::string_view field) {
  using parameters::kInfinity;
  using parameters::Parameter;
  const auto rows = parameters::All();
  const auto row = std::ranges::find(rows, field, &Parameter::field);
  CHECK(row != rows.end());
  const parameters::Domain& domain = row->domain;
  config::Constraint bounds;
  if (domain.low > -kInfinity) bounds.min = domain.low;
  if (domain.high < kInfinity) bounds.max = domain.high;
  bounds.excludes_min = domain.excludes_low;
  return bounds;
}

}  // namespace inflight::tool
