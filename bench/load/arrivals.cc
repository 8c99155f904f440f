// SPDX-License-Identifier: Apache-2.0
#include "bench/load/arrivals.h"

#include <cmath>
#include <random>

namespace inflight::bench {

std::vector<int64_t> DueTimes(double request_rate, uint64_t seed, size_t count) {
  std::vector<int64_t> due(count, 0);
  if (request_rate <= 0) return due;
  std::mt19937_64 random(seed);
  double at_s = 0;
  for (int64_t& time : due) {
    time = static_cast<int64_t>(at_s * 1e9);
    // (0, 1], by hand, so that a seed means the same arrivals with every library.
    const double uniform = (static_cast<double>(random() >> 11) + 1) * 0x1p-53;
    at_s -= std::log(uniform) / request_rate;
  }
  return due;
}

}  // namespace inflight::bench
