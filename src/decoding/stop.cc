// SPDX-License-Identifier: Apache-2.0
#include "decoding/stop.h"

#include <algorithm>

namespace inflight::decoding {

FinishReason CheckStop(const StopCriteria& criteria, std::span<const TokenId> tokens) {
  if (static_cast<int>(tokens.size()) <= criteria.num_prompt_tokens)
    return FinishReason::kNotFinished;
  const TokenId last = tokens.back();
  if (std::find(criteria.end_ids.begin(), criteria.end_ids.end(), last) != criteria.end_ids.end())
    return FinishReason::kEndId;
  for (const std::vector<TokenId>& word : criteria.stop_words) {
    if (word.size() <= tokens.size() &&
        std::equal(word.begin(), word.end(),
                   tokens.end() - static_cast<std::ptrdiff_t>(word.size())))
      return FinishReason::kStopWords;
  }
  if (static_cast<int>(tokens.size()) >= criteria.max_seq_len) return FinishReason::kLength;
  return FinishReason::kNotFinished;
}

}  // namespace inflight::decoding
