// SPDX-License-Identifier: Apache-2.0
#include "executor/backend.h"

#include <algorithm>

namespace inflight::executor {

ExecutorLimits LimitsOf(const BackendInfo& info) {
  const int64_t least = std::ranges::min(info.kv_groups, {}, &KvGroup::num_blocks).num_blocks;
  return {.vocab_size = info.vocab_size,
          .max_batch_size = info.max_batch_size,
          .max_num_tokens = info.max_num_tokens,
          .max_seq_len = info.max_seq_len,
          .max_input_len = info.max_input_len,
          .max_beam_width = info.max_beam_width,
          .max_draft_len = info.max_tokens_per_row - 1,
          .returns_logits = info.returns_logits,
          .hidden_size = info.hidden_size,
          .max_prompt_embedding_table_size = info.max_prompt_embedding_table_size,
          .block_size = info.kv_groups[0].block_size,
          .num_blocks = info.kv_groups[0].num_blocks,
          .least_blocks = info.kv_groups.size() > 1 ? least : 0};
}

void StepResult::Reserve(int max_rows) {
  const auto rows = static_cast<size_t>(max_rows);
  token_begin.reserve(rows + 1);
  token_ids.reserve(rows);
  log_probs.reserve(rows);
  cum_log_probs.reserve(rows);
  finish_reasons.reserve(rows);
  verdicts.reserve(rows);
  num_drafted.reserve(rows);
  accepted_nodes.reserve(rows);
  parents.reserve(rows);
}

void StepResult::Clear(int num_rows) {
  const auto rows = static_cast<size_t>(num_rows);
  token_begin.assign(rows + 1, 0);
  token_ids.clear();
  log_probs.clear();
  cum_log_probs.assign(rows, 0.0F);
  finish_reasons.assign(rows, FinishReason::kNotFinished);
  verdicts.assign(rows, decoding::GuideVerdict::kTokens);
  num_drafted.assign(rows, 0);
  accepted_nodes.assign(rows, 0);
  parents.assign(rows, 0);
  logits.clear();
}

RowLogits& StepResult::LogitsOf(int row) {
  logits.resize(finish_reasons.size());
  std::shared_ptr<RowLogits>& found = logits[static_cast<size_t>(row)];
  if (found == nullptr) found = std::make_shared<RowLogits>();
  return *found;
}

}  // namespace inflight::executor
