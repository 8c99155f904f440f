// SPDX-License-Identifier: Apache-2.0
// What make_prompt_table_golden.py keeps of transformers, read back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "golden_case.h"
#include "inflight/prompt_table.h"
#include "inflight/request.h"

namespace inflight::golden {

struct PromptTableCase : GoldenCase {
  std::shared_ptr<const PromptTable> table;
  std::vector<std::vector<TokenId>> beams;  // best first

  Request GreedyRequest() const;
};

std::vector<PromptTableCase> ReadPromptTableCases();

}  // namespace inflight::golden
