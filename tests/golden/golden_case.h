// SPDX-License-Identifier: Apache-2.0
// What scripts beside this file keep, as JSON, of an oracle's answer to one prompt.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "inflight/request.h"

namespace inflight::golden {

struct GoldenCase {
  std::string model;
  std::vector<TokenId> prompt, greedy;
  std::vector<int> positions;              // of the prompt with what was generated behind it
  std::vector<std::vector<float>> logits;  // [positions][vocab_size]
  float noise_gain = 0;                    // as of Expected; 0 = not measured
};

// Reads these members of an entry.
void ReadCase(const nlohmann::json& entry, GoldenCase* out);

// The largest difference of an answer's logits, context_logits and then generation_logits, from the
// case's; infinite where there are more or fewer.
float WorstLogit(const GoldenCase& c, const std::vector<float>& logits);

// The sum of the log-probs of `ids`, which stand behind the first `num_before` tokens of a prompt
// whose logits are `logits`, [tokens, vocab_size], before decoding.
double LogProbOf(std::span<const TokenId> ids, size_t num_before, std::span<const float> logits,
                 size_t vocab_size);

}  // namespace inflight::golden
