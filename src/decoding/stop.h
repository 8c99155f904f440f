// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "inflight/request.h"

namespace inflight::decoding {

// What ends a sequence; constant for its life.
struct StopCriteria {
  std::vector<TokenId> end_ids;
  std::vector<std::vector<TokenId>> stop_words;  // each non-empty
  int num_prompt_tokens = 0;
  int max_seq_len = 0;  // prompt + output, in tokens
};

// Whether the sequence `tokens` (prompt and output, the newest last) ends with its last token, and
// by which rule. End ids win over stop words, and those over the length. A stop word may begin
// inside the prompt, but needs one generated token.
FinishReason CheckStop(const StopCriteria& criteria, std::span<const TokenId> tokens);

}  // namespace inflight::decoding
