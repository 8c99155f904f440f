// SPDX-License-Identifier: Apache-2.0
#include "scheduler/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace inflight::scheduler {
Scheduler::Scheduler(const SchedulerOptions& options, kv_cache::KvCache* kv_cache)
    : options_(options),
      kv_cache_(kv_cache),
      max_running_(std::min({options.max_batch_size, options.max_num_tokens, StepPlan::kMaxRows})),
      max_step_rows_(options.looks_ahead ? max_running_ : MaxStepRows(max_running_, options.depth)),
      chunk_unit_(0),
      max_chunk_(0),
      lookahead_(1) {
  for (int g = 0; g < kv_cache_->num_groups(); ++g) {
    chunk_unit_ = std::max(chunk_unit_, kv_cache_->block_size(g));
    CHECK_LE(options_.max_tokens_per_row, kv_cache_->block_size(g));  // a row begins one block
  }
  lookahead_ = std::max(1, chunk_unit_ / 8);
  max_chunk_ = MaxChunkTokens(
      options_, {.widest = kv_cache_->window(), .keeps_all = kv_cache_->keeps_all()}, chunk_unit_);
  CHECK_GE(options_.max_slots, max_running_);
  for (SlotId slot = options_.max_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  running_.reserve(static_cast<size_t>(max_running_));
  chunks_.reserve(static_cast<size_t>(max_running_));
  pausing_.reserve(static_cast<size_t>(options_.max_slots));
}

int Scheduler::MaxChunkTokens(const SchedulerOptions& options, const KeptTokens& kept,
                              int block_size) {
  if (kept.widest == 0 || !options.enable_chunked_prefill) return options.max_num_tokens;
  const int rounded = kv_cache::BlocksFor(kept.widest, block_size) * block_size;
  return std::min(options.max_num_tokens,
                  kept.keeps_all ? std::max(rounded, kLeastMixedChunk) : rounded);
}

void Scheduler::Add(SequenceState* sequence) {
  CHECK(sequence->phase == Phase::kIdle);
  sequence->phase = Phase::kWaiting;
  waiting_.Insert(sequence);
}

void Scheduler::Plan(const PrefillShare& share, PlannedStep* step, bool may_start) {
  StepPlan& plan = step->plan;
  plan.num_rows = plan.num_decode_rows = plan.num_tokens = plan.num_yields = 0;
  plan.num_updates = plan.num_block_ids = 0;
  step->num_drafts = 0;
  step->rows.clear();
  step->admitted.clear();
  may_start_ = may_start;
  is_short_of_blocks_ = false;

  if (!pausing_.empty()) ParkPaused();
  PlanDecodeRows(step);
  if (options_.policy == SchedulerPolicy::kStaticBatch) {
    FormBatch(step);
    may_start_ = false;
  }
  const Budget budget{
      .tokens = options_.max_num_tokens - plan.num_tokens,
      .prefill =
          std::min(plan.num_decode_rows > 0 ? share.beside_decode : share.alone, StageTokens()),
      .first = true};
  if (options_.chunking == ChunkingPolicy::kEqualProgress && options_.enable_chunked_prefill) {
    PlanPrefillEqually(budget, step);
  } else {
    PlanPrefillInOrder(budget, step);
  }
}

void Scheduler::PlanDecodeRows(PlannedStep* step) {
  const bool reserves = options_.policy == SchedulerPolicy::kMaxUtilization;
  int room_for_drafts = RoomForDrafts();
  const int stage_rows = StageRows();
  // Steps of stages go on where the one before had no more room: those in front, in flight in
  // turns, would fill each. Not where rows need blocks, for the last of all are paused for them.
  const size_t first = options_.looks_ahead || reserves ? 0 : next_decode_;
  const size_t num_running = running_.size();
  next_decode_ = 0;
  // A pause shortens running_ at its end.
  for (size_t turn = 0; turn < num_running && turn < running_.size(); ++turn) {
    const size_t i = (first + turn) % num_running;
    SequenceState* sequence = running_[i];
    if (sequence->phase != Phase::kDecode || sequence->is_held) continue;
    const bool has_beams = sequence->num_beams > 1;
    if ((has_beams || !options_.looks_ahead) && sequence->num_rows_in_flight > 0) continue;
    // The row computes positions from num_planned_tokens on and yields the tokens after them.
    const int room = sequence->max_seq_len - 1 - sequence->num_planned_tokens;
    if (room < 1) continue;
    const int num_rows = step->plan.num_rows;
    if (num_rows > 0 && num_rows + sequence->num_beams > stage_rows) {
      next_decode_ = i;
      break;
    }
    const int num_drafts = has_beams
                               ? 0
                               : std::min({options_.max_tokens_per_row - 1,
                                           sequence->max_draft_tokens, room - 1, room_for_drafts});
    const int num_tokens = 1 + num_drafts;
    if (!UpdatesFit(*sequence, sequence->num_planned_tokens + num_tokens, step->plan)) continue;
    if (reserves && !ReserveRow(sequence, num_tokens)) continue;
    AddRow(sequence, num_tokens, num_drafts, /*is_prefill=*/false, /*yields=*/true, step);
    room_for_drafts -= num_drafts;
  }
  step->plan.num_decode_rows = step->plan.num_rows;
}

// Decode rows of a step: one stage's share of all, those in flight too.
int Scheduler::StageRows() const {
  if (options_.looks_ahead) return max_step_rows_;
  int num_rows = 0;
  for (const SequenceState* sequence : running_)
    if (sequence->phase == Phase::kDecode && !sequence->is_held) num_rows += sequence->num_beams;
  return MaxStepRows(num_rows, options_.depth);
}

// What one token of each row leaves, and a block for prompts where there are any.
int Scheduler::RoomForDrafts() const {
  if (options_.max_tokens_per_row == 1) return 0;
  const bool has_prompts = num_waiting() > 0 || std::ranges::any_of(running_, [](const auto* s) {
                             return s->phase == Phase::kPrefill;
                           });
  return std::clamp(options_.max_num_tokens - num_running_rows_ - (has_prompts ? chunk_unit_ : 0),
                    0, options_.max_drafts);
}

bool Scheduler::UpdatesFit(SequenceState& sequence, int num_tokens, const StepPlan& plan) const {
  int num_ids = 0;
  int num_updates = 0;
  for (int g = 0; g < kv_cache_->num_groups(); ++g) {
    kv_cache::GroupTable& table = sequence.blocks.groups[static_cast<size_t>(g)];
    const int num_blocks = kv_cache::BlocksFor(num_tokens, kv_cache_->block_size(g));
    for (int b = 0; b < sequence.num_beams; ++b) {
      const kv_cache::BlockTable& beam = table.beam(b);
      const bool grows = b == 0 || !beam.blocks.empty();
      const int num_new = grows ? std::max(num_blocks - beam.num_sent, 0) : 0;
      const int num_spares = sequence.num_beams > 1 && !beam.is_spare_sent ? 1 : 0;
      num_ids += num_new + num_spares;
      num_updates += (num_new > 0 ? 1 : 0) + num_spares;
    }
  }
  return plan.num_rows + sequence.num_beams <= StepPlan::kMaxRows &&
         plan.num_updates + num_updates <= StepPlan::kMaxUpdates &&
         plan.num_block_ids + num_ids <= StepPlan::kMaxBlockIds;
}

void Scheduler::AddRow(SequenceState* sequence, int num_query_tokens, int num_drafts,
                       bool is_prefill, bool yields, PlannedStep* step) {
  StepPlan& plan = step->plan;
  const int num_rows = is_prefill ? 1 : sequence->num_beams;
  for (int b = 0; b < num_rows; ++b) {
    PlanRow& row = plan.rows[static_cast<size_t>(plan.num_rows)];
    row = PlanRow{};
    row.slot = SlotOf(*sequence, b);
    row.num_query_tokens = num_query_tokens;
    row.first_position = sequence->num_planned_tokens;
    row.is_prefill = is_prefill ? 1 : 0;
    row.yields = yields ? 1 : 0;
    row.num_draft_tokens = static_cast<uint8_t>(num_drafts);
    ++plan.num_rows;
    step->num_drafts += num_drafts;
    plan.num_tokens += num_query_tokens;
    plan.num_yields += yields ? 1 : 0;
    step->rows.push_back(sequence);
  }
  sequence->num_planned_tokens += num_query_tokens;
  kv_cache_->Extend(&sequence->blocks, sequence->num_planned_tokens);
  if (sequence->num_beams > 1 && yields) kv_cache_->AddSpares(&sequence->blocks);
  SendBlocks(sequence, &plan);
}

void Scheduler::SendBlocks(SequenceState* sequence, StepPlan* plan) {
  for (int g = 0; g < kv_cache_->num_groups(); ++g) {
    kv_cache::GroupTable& table = sequence->blocks.groups[static_cast<size_t>(g)];
    for (int b = 0; b < sequence->num_beams; ++b) {
      kv_cache::BlockTable& beam = table.beam(b);
      const auto num_sent = static_cast<size_t>(beam.num_sent);
      if (num_sent < beam.blocks.size()) {
        SendUpdate(SlotOf(*sequence, b), g, beam.num_sent, std::span(beam.blocks).subspan(num_sent),
                   plan);
        beam.num_sent = static_cast<int>(beam.blocks.size());
      }
      if (beam.spare >= 0 && !beam.is_spare_sent) {
        SendUpdate(SlotOf(*sequence, b), g, BlockTableUpdate::kSpare, std::span(&beam.spare, 1),
                   plan);
        beam.is_spare_sent = true;
      }
    }
  }
}

void Scheduler::SendUpdate(SlotId slot, int group, int first_idx, std::span<const BlockId> blocks,
                           StepPlan* plan) {
  BlockTableUpdate& update = plan->updates[static_cast<size_t>(plan->num_updates++)];
  update.slot = slot;
  update.group = static_cast<int16_t>(group);
  update.num_blocks = static_cast<int16_t>(blocks.size());
  update.first_idx = first_idx;
  update.offset = plan->num_block_ids;
  std::copy(blocks.begin(), blocks.end(), plan->block_ids.begin() + plan->num_block_ids);
  plan->num_block_ids += static_cast<int32_t>(blocks.size());
}

void Scheduler::Reorder(SequenceState* sequence, std::span<const int32_t> parents, int num_tokens) {
  kv_cache_->Reorder(&sequence->blocks, parents, num_tokens);
  for (kv_cache::GroupTable& table : sequence->blocks.groups) {
    for (int b = 0; b < sequence->num_beams; ++b) {  // the device did the same
      kv_cache::BlockTable& beam = table.beam(b);
      beam.num_sent = static_cast<int>(beam.blocks.size());
      beam.is_spare_sent = beam.spare >= 0;
    }
  }
}

void Scheduler::DropRow(int row, PlannedStep* step) {
  StepPlan& plan = step->plan;
  const PlanRow dropped = plan.rows[static_cast<size_t>(row)];
  const SequenceState& owner = *step->rows[static_cast<size_t>(row)];
  std::copy(plan.rows.begin() + row + 1, plan.rows.begin() + plan.num_rows,
            plan.rows.begin() + row);
  step->rows.erase(step->rows.begin() + row);
  --plan.num_rows;
  plan.num_decode_rows -= dropped.is_prefill != 0 ? 0 : 1;
  plan.num_tokens -= dropped.num_query_tokens;
  plan.num_yields -= dropped.yields;
  const auto end =
      std::remove_if(plan.updates.begin(), plan.updates.begin() + plan.num_updates,
                     [&owner](const BlockTableUpdate& update) {
                       const auto& slots = owner.beam_slots;
                       return update.slot == owner.slot ||
                              std::find(slots.begin(), slots.end(), update.slot) != slots.end();
                     });
  plan.num_updates = static_cast<int32_t>(end - plan.updates.begin());
}

void Scheduler::Remove(SequenceState* sequence) {
  if (blocked_ == sequence) blocked_ = nullptr;
  switch (sequence->phase) {
    case Phase::kWaiting:
      waiting_.Erase(sequence);
      if (sequence->num_pauses > 0) --num_paused_;
      break;
    case Phase::kAside:
      if (sequence->num_pauses > 0) --num_paused_;
      break;
    case Phase::kPausing:
      std::erase(pausing_, sequence);
      --num_paused_;
      break;
    case Phase::kPrefill:
    case Phase::kDecode:
      running_.erase(std::find(running_.begin(), running_.end(), sequence));
      StopRunning(sequence);
      break;
    case Phase::kIdle:
    case Phase::kRemoved:
      break;
  }
  if (sequence->phase != Phase::kRemoved && sequence->slot >= 0) ++num_removed_;
  sequence->phase = Phase::kRemoved;
}

void Scheduler::StopRunning(SequenceState* sequence) {
  num_running_rows_ -= sequence->num_beams;
  kv_cache_->EndGrowth(&sequence->blocks);
}

void Scheduler::Release(SequenceState* sequence, int num_valid_tokens) {
  CHECK(sequence->phase == Phase::kRemoved);
  if (sequence->slot < 0) return;
  GiveBack(sequence, num_valid_tokens);
  --num_removed_;
}

void Scheduler::GiveBack(SequenceState* sequence, int num_valid_tokens) {
  Publish(sequence, num_valid_tokens);
  kv_cache_->Free(&sequence->blocks);
  for (int b = sequence->num_beams - 1; b >= 0; --b) free_slots_.push_back(SlotOf(*sequence, b));
  sequence->slot = -1;
  sequence->beam_slots.clear();
}

void Scheduler::Publish(SequenceState* sequence, int num_valid_tokens) {
  const std::vector<TokenId>& tokens = *sequence->tokens;  // of beams the prompt alone
  num_valid_tokens = std::min(num_valid_tokens, static_cast<int>(tokens.size()));
  kv_cache_->Publish(&sequence->blocks, tokens, num_valid_tokens);
}

void Scheduler::Advance(SequenceState* sequence, int num_kv_tokens) {
  if (kv_cache_->window() == 0) return;
  Publish(sequence, num_kv_tokens);
  kv_cache_->Advance(&sequence->blocks, num_kv_tokens, MaxAheadTokens(*sequence, num_kv_tokens));
}

// What is planned at most beyond `num_kv_tokens` until more of them are known to be written. Chunks
// of a prompt may be many windows long where other layers see all (kLeastMixedChunk): then what
// they needed is given up when none is in flight any more.
int Scheduler::MaxAheadTokens(const SequenceState& sequence, int num_kv_tokens) const {
  const int in_flight = sequence.num_planned_tokens - num_kv_tokens;
  const bool only_decodes = sequence.phase == Phase::kDecode &&
                            in_flight <= sequence.num_rows_in_flight * options_.max_tokens_per_row;
  return only_decodes && kv_cache_->keeps_all() ? options_.depth * options_.max_tokens_per_row
                                                : sequence.max_ahead_tokens;
}

}  // namespace inflight::scheduler
