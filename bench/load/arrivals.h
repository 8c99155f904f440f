// SPDX-License-Identifier: Apache-2.0
// When requests of an open load are sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace inflight::bench {

// Nanoseconds after the start, ascending, the first 0: a Poisson process of `request_rate` arrivals
// a second, the same for a seed on every machine. All 0 where the rate is not above 0.
std::vector<int64_t> DueTimes(double request_rate, uint64_t seed, size_t count);

}  // namespace inflight::bench
