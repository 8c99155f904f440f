// SPDX-License-Identifier: Apache-2.0
// Stop and bad word lists as the models pass them: INT32 [2, n], row 0 the ids of all words one
// after the other (padded with 0), row 1 the running ends of the words (padded with -1).
//
//   words {5,7,3} and {9,2}  <->  [[5,7,3,9,2], [3,5,-1,-1,-1]]      no words  <->  [[0], [-1]]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "inflight/request.h"
#include "inflight/status.h"

namespace inflight::contract {

using Words = std::vector<std::vector<TokenId>>;

size_t NumIds(const Words& words);

// [2 * n] row-major, n = max(min_width, NumIds): the lists of a batch are all as wide as the
// widest. Empty words are left out.
std::vector<int32_t> EncodeWordList(const Words& words, size_t min_width = 1);

// Words of a flattened [2, n] list. kInvalidArgument ("Sparse list must not have ...") when the
// length is odd, an end lies outside the ids, ends do not grow, or a value follows the first -1.
Result<Words> DecodeWordList(std::span<const int32_t> list);

}  // namespace inflight::contract
