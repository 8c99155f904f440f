// SPDX-License-Identifier: Apache-2.0
// Requests of random prompts.
#pragma once

#include "run_requests.h"

namespace inflight::gpu {

// Greedy, with log-probs; ids below `vocab_size`.
Request RandomRequest(int prompt_len, int max_tokens, int vocab_size, unsigned seed);

}  // namespace inflight::gpu
