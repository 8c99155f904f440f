// SPDX-License-Identifier: Apache-2.0
// What the golden tests agree on.
#pragma once

namespace inflight::golden {

// What float32 logits, and scores of beams, which are means of log-probabilities, may differ by.
constexpr float kTolerance = 1e-4F;

constexpr int kBlockSize = 16;  // tokens

}  // namespace inflight::golden
