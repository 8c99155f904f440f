// SPDX-License-Identifier: Apache-2.0
// What make_prompt_table_golden.py keeps of transformers, read back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "inflight/prompt_table.h"
#include "inflight/request.h"

namespace inflight::golden {

struct PromptTableCase {
  std::string model;
  std::shared_ptr<const PromptTable> table;
  std::vector<TokenId> prompt, greedy;
  std::vector<std::vector<TokenId>> beams;  // best first
  std::vector<int> positions;
  std::vector<std::vector<float>> logits;  // [positions][vocab_size]
  float noise_gain = 0;                    // as of Expected; 0 = not measured

  Request GreedyRequest() const;
};

std::vector<PromptTableCase> ReadPromptTableCases();

// The largest difference of an answer's logits, context_logits and then generation_logits, from the
// case's.
float WorstLogit(const PromptTableCase& c, const std::vector<float>& logits);

}  // namespace inflight::golden
