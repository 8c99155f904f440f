// SPDX-License-Identifier: Apache-2.0
// Who holds slots and blocks: admission by policy, pause and resume, and who is held.
//
// Two facts carry the promise that nobody starves (docs/executor.md): sequences are admitted in
// order and none past one that waits, and the one paused is always the last in order. So whoever
// runs comes before whoever is paused, and the first of all can take what it needs. Held sequences
// stand aside, and have both promises again once they are back in the line.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace inflight::scheduler {
// The first in line gets a slot and joins the running ones; false when it has to wait.
bool Scheduler::Admit(PlannedStep* step) {
  SequenceState* sequence = waiting_.first();
  if (sequence == nullptr || !MayAdmit(*sequence) || !StartBlocks(sequence)) return false;
  waiting_.Erase(sequence);
  if (sequence->num_pauses > 0) --num_paused_;
  TakeSlots(sequence);
  sequence->phase = Phase::kPrefill;
  sequence->num_prefill_tokens = static_cast<int>(sequence->tokens->size());
  sequence->num_planned_tokens = sequence->num_cached_tokens;
  auto place = std::upper_bound(
      running_.begin(), running_.end(), sequence,
      [](const SequenceState* a, const SequenceState* b) { return ComesBefore(*a, *b); });
  running_.insert(place, sequence);
  step->admitted.push_back(sequence);
  return true;
}

void Scheduler::TakeSlots(SequenceState* sequence) {
  sequence->slot = free_slots_.back();
  free_slots_.pop_back();
  num_running_rows_ += sequence->num_beams;
  if (sequence->num_beams == 1) return;
  sequence->beam_slots.assign(1, sequence->slot);
  for (int b = 1; b < sequence->num_beams; ++b) {
    sequence->beam_slots.push_back(free_slots_.back());
    free_slots_.pop_back();
  }
}

bool Scheduler::HasPlace(const SequenceState& sequence, int num_rows_before) const {
  const int num_rows = num_rows_before + sequence.num_beams;
  if (num_running_rows_ + num_rows > max_running_) return false;
  if (std::ssize(free_slots_) < num_rows) return false;
  if (!may_start_ && sequence.num_pauses == 0) return false;
  // One that is pausing will stand in line before those that are there now.
  return !is_short_of_blocks_ && pausing_.empty();
}

bool Scheduler::MayAdmit(const SequenceState& sequence) const {
  if (!HasPlace(sequence, 0)) return false;
  // A batch is formed at once: one that waited for a twin would miss it.
  if (options_.policy == SchedulerPolicy::kStaticBatch) return true;
  return !PrefixIsBeingComputed(sequence);
}

// STATIC_BATCH: as many as fit when nobody is left of the last batch. Their prompts may take
// several steps.
void Scheduler::FormBatch(PlannedStep* step) {
  if (!running_.empty() || num_leaving() > 0) return;
  while (Admit(step)) {
  }
}

bool Scheduler::StartBlocks(SequenceState* sequence) {
  if (blocked_ == sequence && blocked_version_ == kv_cache_->version()) return false;
  const int full = sequence->max_seq_len - 1;  // the last token is never fed
  const int known = static_cast<int>(sequence->tokens->size());
  const int chunk = std::min(known + sequence->num_prompt_drafts, max_chunk_);
  sequence->max_ahead_tokens = options_.depth * std::max(chunk, options_.max_tokens_per_row);
  kv_cache::KvCache::StartParams params{
      .tokens = *sequence->tokens,
      .salt = sequence->cache_salt,
      .num_beams = sequence->num_beams,
      .max_kv_tokens = full,
      .reserved_tokens = full,
      .max_ahead_tokens = sequence->max_ahead_tokens,
      .num_spare_blocks = 0,
      .max_reused_blocks =
          sequence->reuses_blocks ? kMaxReusedBlocks / kv_cache_->num_groups() : 0};
  if (options_.policy == SchedulerPolicy::kMaxUtilization) {
    params.reserved_tokens =
        std::min(known + std::max(lookahead_, sequence->num_prompt_drafts), full);
    params.num_spare_blocks = NumSpareBlocks();
  }
  if (kv_cache_->Start(params, &sequence->blocks, &sequence->num_cached_tokens)) return true;
  blocked_ = sequence;
  blocked_version_ = kv_cache_->version();
  return false;
}

// Blocks that running sequences will begin within the next steps.
int Scheduler::NumSpareBlocks() const {
  int num_blocks = 0;
  for (const SequenceState* sequence : running_) {
    const int known = std::max(sequence->num_planned_tokens, sequence->num_prefill_tokens);
    const int end = std::min(known + lookahead_, sequence->max_seq_len - 1);
    int num_missing = 0;  // of the group that lacks most
    for (int g = 0; g < kv_cache_->num_groups(); ++g) {
      num_missing = std::max(num_missing, kv_cache_->NumMissing(sequence->blocks, g, end));
    }
    num_blocks += num_missing;
  }
  return num_blocks;
}

// True when a running sequence is about to publish the first block that `sequence` would have to
// compute: waiting for it is cheaper than computing it twice.
bool Scheduler::PrefixIsBeingComputed(const SequenceState& sequence) const {
  if (!kv_cache_->enable_prefix_reuse() || !sequence.reuses_blocks) return false;
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

// MAX_UTILIZATION: sets aside the block that the next decode row of `sequence` may begin. Where
// none is free, the last running sequences are paused until one is, `sequence` itself at the worst.
// False when it has no row in this step: its blocks are on their way from sequences that leave, or
// it is the one that was paused.
bool Scheduler::ReserveRow(SequenceState* sequence, int num_tokens) {
  const int end = sequence->num_planned_tokens + num_tokens;
  while (!kv_cache_->Reserve(&sequence->blocks, end)) {
    SequenceState* last = running_.back();
    const bool ends_soon = last->num_planned_tokens + 1 >= last->max_seq_len;
    if (num_leaving() == 0 && !ends_soon) {
      Pause(last);
      if (last != sequence && num_leaving() == 0) continue;
    }
    is_short_of_blocks_ = true;
    return false;
  }
  return true;
}

void Scheduler::Pause(SequenceState* sequence) {
  std::erase(running_, sequence);
  StopRunning(sequence);
  ++sequence->num_pauses;
  ++num_pauses_;
  ++num_paused_;
  sequence->phase = Phase::kPausing;
  if (sequence->num_rows_in_flight > 0) {
    pausing_.push_back(sequence);
  } else {
    Park(sequence);
  }
}

void Scheduler::PauseAll() {
  while (!running_.empty()) Pause(running_.back());
}

// Sequences whose last row in flight was collected give back what they hold.
void Scheduler::ParkPaused() {
  std::erase_if(pausing_, [this](SequenceState* sequence) {
    if (sequence->num_rows_in_flight > 0) return false;
    Park(sequence);
    return true;
  });
}

void Scheduler::Park(SequenceState* sequence) {
  GiveBack(sequence, sequence->num_kv_tokens);
  if (sequence->is_held) {
    sequence->phase = Phase::kAside;
    return;
  }
  sequence->phase = Phase::kWaiting;
  waiting_.Insert(sequence);
}

void Scheduler::Hold(SequenceState* sequence) {
  if (sequence->is_held || sequence->phase == Phase::kRemoved) return;
  sequence->is_held = true;
  if (sequence->phase != Phase::kWaiting) return;
  waiting_.Erase(sequence);
  sequence->phase = Phase::kAside;
}

void Scheduler::GoOn(SequenceState* sequence) {
  sequence->is_held = false;
  if (sequence->phase != Phase::kAside) return;
  sequence->phase = Phase::kWaiting;
  waiting_.Insert(sequence);
}

void Scheduler::PutAside(SequenceState* sequence) {
  const bool runs = sequence->phase == Phase::kPrefill || sequence->phase == Phase::kDecode;
  if (sequence->is_held && runs) Pause(sequence);
}

}  // namespace inflight::scheduler
