// SPDX-License-Identifier: Apache-2.0
#include "scheduler/scheduler.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace inflight::scheduler {
namespace {

int BlocksFor(int num_tokens, int block_size) { return (num_tokens + block_size - 1) / block_size; }

bool ComesBefore(const SequenceState& a, const SequenceState& b) {
  return a.priority != b.priority ? a.priority > b.priority : a.arrival < b.arrival;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, kv_cache::KvCache* kv_cache)
    : options_(options),
      kv_cache_(kv_cache),
      max_running_(std::min({options.max_batch_size, options.max_num_tokens, StepPlan::kMaxRows})),
      chunk_unit_(0) {
  for (int g = 0; g < kv_cache_->num_groups(); ++g) {
    chunk_unit_ = std::max(chunk_unit_, kv_cache_->block_size(g));
  }
  CHECK_GE(options_.max_slots, max_running_);
  for (SlotId slot = options_.max_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  running_.reserve(static_cast<size_t>(max_running_));
}

void Scheduler::Add(SequenceState* sequence) {
  CHECK(sequence->phase == Phase::kIdle);
  sequence->phase = Phase::kWaiting;
  SequenceState* after = last_waiting_;
  while (after != nullptr && ComesBefore(*sequence, *after)) after = after->previous;
  sequence->previous = after;
  sequence->next = after != nullptr ? after->next : first_waiting_;
  (sequence->next != nullptr ? sequence->next->previous : last_waiting_) = sequence;
  (after != nullptr ? after->next : first_waiting_) = sequence;
  ++num_waiting_;
}

void Scheduler::Unlink(SequenceState* sequence) {
  (sequence->previous != nullptr ? sequence->previous->next : first_waiting_) = sequence->next;
  (sequence->next != nullptr ? sequence->next->previous : last_waiting_) = sequence->previous;
  sequence->previous = sequence->next = nullptr;
  --num_waiting_;
  if (blocked_ == sequence) blocked_ = nullptr;
}

void Scheduler::Plan(const PrefillShare& share, PlannedStep* step) {
  StepPlan& plan = step->plan;
  plan.num_rows = plan.num_decode_rows = plan.num_tokens = plan.num_yields = 0;
  plan.num_updates = plan.num_block_ids = 0;
  step->rows.clear();
  step->admitted.clear();

  PlanDecodeRows(step);
  Budget budget{.tokens = options_.max_num_tokens - plan.num_tokens,
                .prefill = plan.num_decode_rows > 0 ? share.beside_decode : share.alone,
                .first = true};
  for (SequenceState* sequence : running_) {
    if (sequence->phase == Phase::kPrefill && !PlanPrefillRow(sequence, &budget, step)) return;
  }
  while (first_waiting_ != nullptr && budget.tokens > 0 && (budget.first || budget.prefill > 0)) {
    SequenceState* sequence = first_waiting_;
    if (!Admit(sequence)) return;
    step->admitted.push_back(sequence);
    if (!PlanPrefillRow(sequence, &budget, step)) return;
  }
}

void Scheduler::PlanDecodeRows(PlannedStep* step) {
  for (SequenceState* sequence : running_) {
    if (sequence->phase != Phase::kDecode) continue;
    // The row computes position num_planned_tokens and yields the token after it.
    if (sequence->num_planned_tokens + 1 >= sequence->max_seq_len) continue;
    if (!UpdatesFit(*sequence, sequence->num_planned_tokens + 1, step->plan)) continue;
    AddRow(sequence, 1, /*is_prefill=*/false, /*yields=*/true, step);
  }
  step->plan.num_decode_rows = step->plan.num_rows;
}

// False when the sequence finds no room in this step; those behind it do not get any either.
bool Scheduler::PlanPrefillRow(SequenceState* sequence, Budget* budget, PlannedStep* step) {
  const int chunk = ChunkSize(*sequence, *budget);
  if (chunk == 0) return false;
  if (!UpdatesFit(*sequence, sequence->num_planned_tokens + chunk, step->plan)) return false;
  const bool is_last = sequence->num_planned_tokens + chunk == sequence->num_prefill_tokens;
  AddRow(sequence, chunk, /*is_prefill=*/true, /*yields=*/is_last, step);
  if (is_last) sequence->phase = Phase::kDecode;
  budget->tokens -= chunk;
  budget->prefill -= chunk;
  budget->first = false;
  return true;
}

// Tokens of the next prefill row; 0 when there is no room. Chunks end on block boundaries, except
// the last one and where max_num_tokens leaves less than a block beside the decode rows.
int Scheduler::ChunkSize(const SequenceState& sequence, const Budget& budget) const {
  const int planned = sequence.num_planned_tokens;
  const int remaining = sequence.num_prefill_tokens - planned;
  const int share = budget.first ? std::max(budget.prefill, chunk_unit_) : budget.prefill;
  if (!options_.enable_chunked_prefill) {
    const bool fits = remaining <= budget.tokens && (budget.first || remaining <= share);
    return fits ? remaining : 0;
  }
  const int limit = std::min(budget.tokens, share);
  if (remaining <= limit) return remaining;
  const int end = (planned + limit) / chunk_unit_ * chunk_unit_;
  if (end > planned) return end - planned;
  return budget.first ? limit : 0;
}

bool Scheduler::Admit(SequenceState* sequence) {
  if (num_running() >= max_running_ || free_slots_.empty()) return false;
  if (blocked_ == sequence && blocked_version_ == kv_cache_->version()) return false;
  if (PrefixIsBeingComputed(*sequence)) return false;
  const kv_cache::KvCache::StartParams params{
      .tokens = *sequence->tokens,
      .salt = sequence->cache_salt,
      .max_kv_tokens = sequence->max_seq_len - 1,  // the last token is never fed
      .max_reused_blocks = kMaxReusedBlocks / kv_cache_->num_groups()};
  if (!kv_cache_->Start(params, &sequence->blocks, &sequence->num_cached_tokens)) {
    blocked_ = sequence;
    blocked_version_ = kv_cache_->version();
    return false;
  }
  Unlink(sequence);
  sequence->slot = free_slots_.back();
  free_slots_.pop_back();
  sequence->phase = Phase::kPrefill;
  sequence->num_prefill_tokens = static_cast<int>(sequence->tokens->size());
  sequence->num_planned_tokens = sequence->num_cached_tokens;
  auto place = std::upper_bound(
      running_.begin(), running_.end(), sequence,
      [](const SequenceState* a, const SequenceState* b) { return ComesBefore(*a, *b); });
  running_.insert(place, sequence);
  return true;
}

// True when a running sequence is about to publish the first block that `sequence` would have to
// compute: waiting for it is cheaper than computing it twice (spec/engine.md 5.4).
bool Scheduler::PrefixIsBeingComputed(const SequenceState& sequence) const {
  if (!kv_cache_->enable_prefix_reuse()) return false;
  const std::vector<TokenId>& tokens = *sequence.tokens;
  const int block_size = kv_cache_->block_size(0);
  int num_matched = -1;
  for (const SequenceState* other : running_) {
    const int num_published = other->blocks.groups[0].num_published * block_size;
    const int num_prefill = other->num_prefill_tokens / block_size * block_size;
    if (num_published >= num_prefill || other->cache_salt != sequence.cache_salt) continue;
    if (num_matched < 0) {
      num_matched =
          kv_cache_->MatchTokens({.tokens = tokens,
                                  .salt = sequence.cache_salt,
                                  .max_reused_blocks = kMaxReusedBlocks / kv_cache_->num_groups()});
    }
    const int end = num_matched + block_size;
    if (end > static_cast<int>(tokens.size()) - 1 || end > num_prefill || end <= num_published)
      continue;
    const size_t bytes = static_cast<size_t>(end) * sizeof(TokenId);
    if (std::memcmp(tokens.data(), other->tokens->data(), bytes) == 0) return true;
  }
  return false;
}

bool Scheduler::UpdatesFit(const SequenceState& sequence, int num_tokens,
                           const StepPlan& plan) const {
  int num_ids = 0;
  int num_updates = 0;
  for (int g = 0; g < kv_cache_->num_groups(); ++g) {
    const kv_cache::GroupTable& table = sequence.blocks.groups[static_cast<size_t>(g)];
    const int num_new = BlocksFor(num_tokens, kv_cache_->block_size(g)) - table.num_sent;
    num_ids += std::max(num_new, 0);
    num_updates += num_new > 0 ? 1 : 0;
  }
  return plan.num_rows < StepPlan::kMaxRows &&
         plan.num_updates + num_updates <= StepPlan::kMaxUpdates &&
         plan.num_block_ids + num_ids <= StepPlan::kMaxBlockIds;
}

void Scheduler::AddRow(SequenceState* sequence, int num_query_tokens, bool is_prefill, bool yields,
                       PlannedStep* step) {
  StepPlan& plan = step->plan;
  PlanRow& row = plan.rows[static_cast<size_t>(plan.num_rows)];
  row = PlanRow{};
  row.slot = sequence->slot;
  row.num_query_tokens = num_query_tokens;
  row.first_position = sequence->num_planned_tokens;
  row.is_prefill = is_prefill ? 1 : 0;
  row.yields = yields ? 1 : 0;
  ++plan.num_rows;
  plan.num_tokens += num_query_tokens;
  plan.num_yields += yields ? 1 : 0;
  step->rows.push_back(sequence);
  sequence->num_planned_tokens += num_query_tokens;
  kv_cache_->Extend(&sequence->blocks, sequence->num_planned_tokens);
  SendBlocks(sequence, &plan);
}

void Scheduler::SendBlocks(SequenceState* sequence, StepPlan* plan) {
  for (int g = 0; g < kv_cache_->num_groups(); ++g) {
    kv_cache::GroupTable& table = sequence->blocks.groups[static_cast<size_t>(g)];
    const int num_new = static_cast<int>(table.blocks.size()) - table.num_sent;
    if (num_new == 0) continue;
    BlockTableUpdate& update = plan->updates[static_cast<size_t>(plan->num_updates++)];
    update.slot = sequence->slot;
    update.group = static_cast<int16_t>(g);
    update.num_blocks = static_cast<int16_t>(num_new);
    update.first_idx = table.num_sent;
    update.offset = plan->num_block_ids;
    std::copy(table.blocks.begin() + table.num_sent, table.blocks.end(),
              plan->block_ids.begin() + plan->num_block_ids);
    plan->num_block_ids += num_new;
    table.num_sent += num_new;
  }
}

void Scheduler::DropRow(int row, PlannedStep* step) {
  StepPlan& plan = step->plan;
  const PlanRow dropped = plan.rows[static_cast<size_t>(row)];
  std::copy(plan.rows.begin() + row + 1, plan.rows.begin() + plan.num_rows,
            plan.rows.begin() + row);
  step->rows.erase(step->rows.begin() + row);
  --plan.num_rows;
  plan.num_decode_rows -= dropped.is_prefill != 0 ? 0 : 1;
  plan.num_tokens -= dropped.num_query_tokens;
  plan.num_yields -= dropped.yields;
  const auto end = std::remove_if(
      plan.updates.begin(), plan.updates.begin() + plan.num_updates,
      [&dropped](const BlockTableUpdate& update) { return update.slot == dropped.slot; });
  plan.num_updates = static_cast<int32_t>(end - plan.updates.begin());
}

void Scheduler::Remove(SequenceState* sequence) {
  if (sequence->phase == Phase::kWaiting) {
    Unlink(sequence);
  } else if (sequence->phase == Phase::kPrefill || sequence->phase == Phase::kDecode) {
    running_.erase(std::find(running_.begin(), running_.end(), sequence));
    kv_cache_->EndGrowth(&sequence->blocks);
  }
  sequence->phase = Phase::kRemoved;
}

void Scheduler::Release(SequenceState* sequence, int num_valid_tokens) {
  CHECK(sequence->phase == Phase::kRemoved);
  if (sequence->slot < 0) return;
  Publish(sequence, num_valid_tokens);
  kv_cache_->Free(&sequence->blocks);
  free_slots_.push_back(sequence->slot);
  sequence->slot = -1;
}

void Scheduler::Publish(SequenceState* sequence, int num_valid_tokens) {
  kv_cache_->Publish(&sequence->blocks, *sequence->tokens, num_valid_tokens);
}

}  // namespace inflight::scheduler
