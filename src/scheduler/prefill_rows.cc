// SPDX-License-Identifier: Apache-2.0
// How a step's prefill budget is spent: the two chunking policies.
#include <algorithm>
#include <cstdint>

#include "scheduler/scheduler.h"

namespace inflight::scheduler {

// Prompt tokens of a step: one stage's share of the prompts that are being computed, with what of
// them is planned or in flight, and of those that are next and have a place.
int Scheduler::StageTokens() const {
  if (options_.looks_ahead) return options_.max_num_tokens;
  const int64_t most = int64_t{options_.depth} * options_.max_num_tokens;
  int64_t num_tokens = 0;
  int num_rows = 0;  // of those that are next
  for (const SequenceState* sequence : running_)
    if (sequence->num_kv_tokens < sequence->num_prefill_tokens)
      num_tokens += sequence->num_prefill_tokens - sequence->num_cached_tokens;
  for (const SequenceState& sequence : waiting_) {
    if (num_tokens >= most || !HasPlace(sequence, num_rows)) break;
    num_tokens += std::ssize(*sequence.tokens);
    num_rows += sequence.num_beams;
  }
  const int64_t share = (std::min(num_tokens, most) + options_.depth - 1) / options_.depth;
  const auto in_units = static_cast<int>((share + chunk_unit_ - 1) / chunk_unit_ * chunk_unit_);
  return std::max(in_units, kLeastStageTokens);
}

// FIRST_COME_FIRST_SERVED: whoever finds no room in this step holds up those behind it.
void Scheduler::PlanPrefillInOrder(Budget budget, PlannedStep* step) {
  const auto plan_row = [&](SequenceState* sequence) {
    const int num_tokens = ChunkSize(*sequence, 0, budget, max_chunk_);
    if (num_tokens == 0 || !AddPrefillRow(sequence, num_tokens, step)) return false;
    budget.Take(num_tokens);
    return true;
  };
  for (SequenceState* sequence : running_) {
    if (sequence->phase == Phase::kPrefill && !plan_row(sequence)) return;
  }
  while (budget.has_room() && Admit(step)) {
    if (!plan_row(step->admitted.back())) return;
  }
}

// EQUAL_PROGRESS: a block for each, in order and with those that can be admitted, then another one
// for each, until the budget is spent. The first in order gets its block in every step.
void Scheduler::PlanPrefillEqually(Budget budget, PlannedStep* step) {
  chunks_.clear();
  const auto take = [&](Chunk* chunk) {
    const int room = max_chunk_ - chunk->num_tokens;
    if (room <= 0) return false;
    const int num_tokens =
        ChunkSize(*chunk->sequence, chunk->num_tokens, budget, std::min(chunk_unit_, room));
    chunk->num_tokens += num_tokens;
    if (num_tokens > 0) budget.Take(num_tokens);
    return num_tokens > 0;
  };
  for (SequenceState* sequence : running_) {
    if (sequence->phase == Phase::kPrefill) chunks_.push_back({sequence, 0});
  }
  bool has_room = true;
  for (Chunk& chunk : chunks_) has_room = has_room && take(&chunk);
  while (has_room && budget.has_room() && Admit(step)) {
    chunks_.push_back({step->admitted.back(), 0});
    has_room = take(&chunks_.back());
  }
  for (bool taken = has_room; taken;) {
    taken = false;
    for (Chunk& chunk : chunks_) taken |= take(&chunk);
  }
  for (const Chunk& chunk : chunks_) {
    if (chunk.num_tokens == 0 || !AddPrefillRow(chunk.sequence, chunk.num_tokens, step)) return;
  }
}

// Tokens that `sequence` may take more, after `num_taken` in this step: at most `at_most`, 0 when
// there is no room. Chunks end on block boundaries, except the last one and where max_num_tokens
// leaves less than a block beside the decode rows. The last one takes along the drafts that came
// with the prompt, those for which it has room.
int Scheduler::ChunkSize(const SequenceState& sequence, int num_taken, const Budget& budget,
                         int at_most) const {
  const int planned = sequence.num_planned_tokens + num_taken;
  const int remaining = sequence.num_prefill_tokens - planned;
  if (remaining <= 0) return 0;
  const int drafts = sequence.num_prompt_drafts;
  const int share = budget.first ? std::max(budget.prefill, chunk_unit_) : budget.prefill;
  // A resumed sequence may know more tokens than any step holds.
  if (!options_.enable_chunked_prefill && remaining <= options_.max_num_tokens) {
    const bool fits = remaining <= budget.tokens && (budget.first || remaining <= share);
    return fits ? remaining + std::min(drafts, budget.tokens - remaining) : 0;
  }
  const int limit = std::min({budget.tokens, share, at_most});
  if (remaining <= limit) return remaining + std::min(drafts, limit - remaining);
  const int end = (planned + limit) / chunk_unit_ * chunk_unit_;
  if (end > planned) return end - planned;
  return budget.first ? limit : 0;
}

// False when the step has no room for it.
bool Scheduler::AddPrefillRow(SequenceState* sequence, int num_tokens, PlannedStep* step) {
  int end = sequence->num_planned_tokens + num_tokens;
  int num_drafts = std::max(0, end - sequence->num_prefill_tokens);
  const int num_missing = std::max(0, num_drafts - (options_.max_drafts - step->num_drafts));
  end -= num_missing;
  num_drafts -= num_missing;
  if (step->plan.num_rows >= max_step_rows_ || !UpdatesFit(*sequence, end, step->plan))
    return false;
  const bool is_last = end >= sequence->num_prefill_tokens;
  AddRow(sequence, num_tokens - num_missing, num_drafts, /*is_prefill=*/true, /*yields=*/is_last,
         step);
  if (is_last) sequence->phase = Phase::kDecode;
  return true;
}

}  // namespace inflight::scheduler
