// SPDX-License-Identifier: Apache-2.0
// The best tokens of a row of logits, for trees of drafts.
#pragma once

#include <cstdint>

namespace inflight::decoding {

// Writes the best `count` of logits [vocab_size] to `ids`, the best first; of equal ones the lower
// id. `count` is at most vocab_size and DraftTree::kMaxChoices. Where fewer are better than
// -infinity, which NaN is not, the rest are 0. Thread-safe.
void BestTokens(const float* logits, int vocab_size, int count, int32_t* ids);

}  // namespace inflight::decoding
