// SPDX-License-Identifier: Apache-2.0
// The likeliest tokens of a row and their log-probs (docs/reference/decoding.md, "Log-probs").
#pragma once

#include <span>
#include <vector>

#include "inflight/request.h"

namespace inflight::decoding {

// The most that a request may ask for: a row is passed over once for all of them.
inline constexpr int kMaxTopLogProbs = 256;

// The `count` (at most logits.size()) largest of log softmax(logits), the largest first; ties to
// the lower id. NaN counts as -inf, and so does every logit where the largest is not finite.
std::vector<TopLogProb> TopLogProbs(std::span<const float> logits, int count);

}  // namespace inflight::decoding
