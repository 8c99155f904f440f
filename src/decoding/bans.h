// SPDX-License-Identifier: Apache-2.0
// Tokens that must not come next (docs/reference/decoding.md). Device: cuda/token_marks.cuh.
#pragma once

#include <span>

#include "decoding/sampling_rule.h"

namespace inflight::decoding {

// Sets what `rule` forbids after `tokens` (prompt and output) in a row of logits:
//   kSuppressed  end ids, while fewer than min_tokens were generated
//   -inf         tokens that would complete an n-gram which stands in `tokens` already
//   -inf         the last id of a bad word whose other ids end `tokens`
//   -inf         tokens with which a bad text would stand in the text of `tokens`
// A row of which nothing else is left yields an end id early rather than a banned token. Costs at
// most O(tokens * n-gram size + ids of the words + what the bad texts ban); ids outside the row are
// passed over.
void Ban(const SamplingRule& rule, std::span<const TokenId> tokens, std::span<float> logits);

}  // namespace inflight::decoding
