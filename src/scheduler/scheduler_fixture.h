// SPDX-License-Identifier: Apache-2.0
// For tests: a scheduler over a KV cache of its own.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "scheduler/scheduler.h"

namespace inflight::scheduler {

inline constexpr PrefillShare kNoGoal{.beside_decode = 1 << 20, .alone = 1 << 20};

// A scheduler whose steps finish as soon as they are planned, unless a test says otherwise.
class SchedulerTest : public ::testing::Test {
 protected:
  void Make(const SchedulerOptions& options, int64_t num_blocks = 64, int block_size = 4) {
    const kv_cache::GroupConfig group{.num_blocks = num_blocks, .block_size = block_size};
    cache_ = std::make_unique<kv_cache::KvCache>(std::span(&group, 1), /*reuse=*/true);
    scheduler_ = std::make_unique<Scheduler>(options, cache_.get());
  }

  // Plans a step that stays in flight until Collect.
  const StepPlan& Launch() {
    scheduler_->Plan(kNoGoal, &step_);
    for (SequenceState* sequence : step_.rows) ++sequence->num_rows_in_flight;
    in_flight_.push_back(step_.rows);
    return step_.plan;
  }
  void Collect() {
    for (SequenceState* sequence : in_flight_.front()) --sequence->num_rows_in_flight;
    in_flight_.pop_front();
  }

  // A row of the sequence was collected and yielded one token.
  static void Grow(SequenceState* sequence, std::vector<TokenId>* tokens) {
    sequence->num_kv_tokens = static_cast<int>(tokens->size());
    tokens->push_back(static_cast<TokenId>(tokens->size()));
  }

  SequenceState* Add(int prompt_len, int max_tokens, float priority = 0.5F) {
    auto& tokens = tokens_.emplace_back(static_cast<size_t>(prompt_len));
    std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(1000 * tokens_.size()));
    return AddTokens(max_tokens, priority);
  }

  SequenceState* AddTokens(int max_tokens, float priority = 0.5F) {
    SequenceState& sequence = sequences_.emplace_back();
    sequence.tokens = &tokens_.back();
    sequence.priority = priority;
    sequence.arrival = sequences_.size();
    sequence.max_seq_len = static_cast<int>(tokens_.back().size()) + max_tokens;
    scheduler_->Add(&sequence);
    return &sequence;
  }

  SequenceState* AddBeams(int num_beams, int prompt_len, int max_tokens) {
    auto& tokens = tokens_.emplace_back(static_cast<size_t>(prompt_len));
    std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(1000 * tokens_.size()));
    SequenceState& sequence = sequences_.emplace_back();
    sequence.tokens = &tokens;
    sequence.num_beams = num_beams;
    sequence.arrival = sequences_.size();
    sequence.max_seq_len = prompt_len + max_tokens;
    scheduler_->Add(&sequence);
    return &sequence;
  }

  // Plans a step and pretends that it was collected.
  const StepPlan& Plan(const PrefillShare& share = kNoGoal) {
    scheduler_->Plan(share, &step_);
    for (int r = 0; r < step_.plan.num_rows; ++r) {
      if (row(r).is_prefill != 0) {
        scheduler_->Publish(step_.rows[static_cast<size_t>(r)],
                            row(r).first_position + row(r).num_query_tokens);
      }
    }
    return step_.plan;
  }

  const PlanRow& row(int r) const { return step_.plan.rows[static_cast<size_t>(r)]; }

  std::vector<int> QueryTokens() const {
    std::vector<int> counts;
    for (int r = 0; r < step_.plan.num_rows; ++r) counts.push_back(row(r).num_query_tokens);
    return counts;
  }

  void End(SequenceState* sequence) {
    scheduler_->Remove(sequence);
    scheduler_->Release(sequence, 0);
  }

  std::unique_ptr<kv_cache::KvCache> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  PlannedStep step_;
  std::deque<std::vector<TokenId>> tokens_;
  std::deque<SequenceState> sequences_;
  std::deque<std::vector<SequenceState*>> in_flight_;
};

}  // namespace inflight::scheduler
