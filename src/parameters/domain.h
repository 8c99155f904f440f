// SPDX-License-Identifier: Apache-2.0
// The values that a parameter may have: an interval, and how an error states it.
#pragma once

#include <limits>
#include <string>
#include <string_view>

namespace inflight::parameters {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Infinite ends are open: NaN and infinities lie in no domain, but for -inf below a finite `high`
// alone.
struct Domain {
  double low = -kInfinity;
  double high = kInfinity;
  bool excludes_low = false;
  std::string_view words = {};  // what an error says instead of the interval

  constexpr bool Contains(double value) const {
    if (!(value <= high) || value == kInfinity) return false;
    if (low == -kInfinity) return high < kInfinity || value > -kInfinity;
    return excludes_low ? value > low : value >= low;
  }
};

// "in [0, 1]", "at least 0"; of fractional numbers also "a finite number above 0", "finite".
std::string ToText(const Domain& domain, bool is_integer);

}  // namespace inflight::parameters
