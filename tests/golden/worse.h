// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

namespace inflight::golden {

// The larger of two errors, for the worst of many. NaN, which std::max forgets and which is no
// larger than anything, stays.
template <typename T>
T Worse(T worst, T error) {
  return error <= worst || std::isnan(worst) ? worst : error;
}

}  // namespace inflight::golden
