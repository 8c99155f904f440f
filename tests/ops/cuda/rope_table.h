// SPDX-License-Identifier: Apache-2.0
// The table that rotary embeddings read (ops/attention.h), for tests.
#pragma once

#include <vector>

#include "support.h"

namespace inflight::ops {

// cos and sin of p * 10000^(-2j / rotary_dim) for the positions given, [num_positions, 2,
// rotary_dim / 2]; NaN elsewhere.
Tensor CosSinTable(int rotary_dim, int num_positions, const std::vector<int>& positions);

}  // namespace inflight::ops
