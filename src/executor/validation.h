// SPDX-License-Identifier: Apache-2.0
// The one place where a request is judged against the engine's limits.
#pragma once

#include "inflight/executor.h"

namespace inflight::executor {

// What stands before each token is compared with every place in the sequence, while all rows wait.
inline constexpr int kMaxNgramSize = 1024;

// kInvalidArgument names field, value, bound and remedy. Shortens max_tokens to what fits
// max_seq_len, as upstream does, and says so in `was_shortened`; drops end id -1 (no end id).
Status ValidateRequest(const ExecutorLimits& limits, Request* request, bool* was_shortened);

}  // namespace inflight::executor
