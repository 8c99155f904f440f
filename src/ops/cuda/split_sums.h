// SPDX-License-Identifier: Apache-2.0
// Sizes of what split_sums.cuh adds.
#pragma once

namespace inflight::ops::cuda {

constexpr int kMaxSummedSplits = 8;
// Of a token's sums, in floats: 4 more than rows keep writes in different banks.
constexpr int SplitSumStride(int rows) { return rows + 4; }

}  // namespace inflight::ops::cuda
