// SPDX-License-Identifier: Apache-2.0
#include "parameters/domain.h"

#include <fmt/format.h>

namespace inflight::parameters {

std::string ToText(const Domain& domain, bool is_integer) {
  if (!domain.words.empty()) return std::string(domain.words);
  const bool has_low = domain.low > -kInfinity;
  const bool has_high = domain.high < kInfinity;
  if (has_low && has_high) {
    return fmt::format("in {}{}, {}]", domain.excludes_low ? '(' : '[', domain.low, domain.high);
  }
  if (has_high) return fmt::format("at most {}", domain.high);
  if (!has_low) return is_integer ? "an integer" : "finite";
  if (is_integer) return fmt::format("at least {}", domain.low);
  return fmt::format("a finite number {} {}", domain.excludes_low ? "above" : "of at least",
                     domain.low);
}

}  // namespace inflight::parameters
