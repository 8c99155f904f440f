// SPDX-License-Identifier: Apache-2.0
#include "parameters/engine_limits.h"

#include <algorithm>

namespace inflight::parameters {

bool IsPromptTooLong(const ExecutorLimits& limits, const Request& request) {
  return std::ssize(request.input_ids) > limits.max_input_len;
}

std::optional<size_t> FindOutsideVocabulary(const ExecutorLimits& limits,
                                            std::span<const TokenId> ids, TokenId lowest) {
  const auto found =
      std::ranges::find_if(ids, [&](TokenId id) { return id < lowest || id >= limits.vocab_size; });
  if (found == ids.end()) return std::nullopt;
  return static_cast<size_t>(found - ids.begin());
}

bool ShortenToSequence(const ExecutorLimits& limits, Request& request) {
  const int room = limits.max_seq_len - static_cast<int>(request.input_ids.size());
  if (request.max_tokens <= room) return false;
  request.max_tokens = room;
  return true;
}

}  // namespace inflight::parameters
