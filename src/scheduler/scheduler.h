// SPDX-License-Identifier: Apache-2.0
// Decides what each step does: who is admitted, who runs, how many tokens each, which blocks.
//
// State in, plan out: no clock, no device, no threads. The executor reports what happened to
// sequences and asks for the next plan; several plans may be under way (backend.h, depth).
//
// One order rules: priority, then turns of clients, then arrival (docs/reference/scheduling.md).
//
//   capacity   who holds blocks, by policy (capacity.cc). The first in line that does not fit
//              waits, and all behind it.
//                GUARANTEED_NO_EVICT: admitted when the blocks of its full length, less those of
//                its reusable prefix, are free beside what running sequences may still need.
//                MAX_UTILIZATION: admitted when the blocks of its next steps are free; when a step
//                lacks blocks, the last running sequence is paused and computed again later.
//                STATIC_BATCH: as the first, but nobody joins until all of a batch have ended.
//   packing    every running decode row, then prefill chunks under one token budget. Drafts of
//              decode rows take no row's place: they get what one token of each row leaves.
//   beams      of a beam search are admitted, planned and paused together. They are not looked
//              ahead: which beam goes on from which is known when a step was collected, and only
//              then the next one is planned.
//   stages     Where nobody is looked ahead, the steps under way are of different sequences, or
//              chunks of one prompt: each takes its share of the decode rows and of the prompts, so
//              that `depth` stages of a device have a step each.
//   held       sequences, whose clients do not read, get no decode rows. One that runs keeps slot
//              and blocks until it is put aside; one that waits leaves the line, and those behind
//              it go on. Whoever is let go on takes its place in the line again.
//   chunks     (prefill_rows.cc) end on block boundaries until the last. FIRST_COME_FIRST_SERVED
//              gives each prompt all it can take, in order; EQUAL_PROGRESS a block each, round
//              after round. Without chunking a prompt is taken whole.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "inflight/executor.h"
#include "kv_cache/kv_cache.h"
#include "scheduler/sequence_state.h"
#include "scheduler/step_plan.h"
#include "scheduler/waiting_line.h"

namespace inflight::scheduler {

struct SchedulerOptions {
  int max_batch_size = 0;  // running sequences, each beam counted, and rows of a step
  int max_num_tokens = 0;  // tokens of a step
  int max_slots = 0;
  int depth = 1;               // steps that are planned and not collected, at most
  bool looks_ahead = true;     // a decode row may be planned before the token that it computes is
                               // known
  int max_tokens_per_row = 1;  // that a decode row computes, and yields at most: 1 + its drafts
  int max_drafts = std::numeric_limits<int>::max();  // of all rows of a step
  SchedulerPolicy policy = SchedulerPolicy::kGuaranteedNoEvict;
  ChunkingPolicy chunking = ChunkingPolicy::kFirstComeFirstServed;
  bool enable_chunked_prefill = true;
};

// Prompt tokens that fit the step-time goal, beside decode rows and without them.
struct PrefillShare {
  int beside_decode = 0;
  int alone = 0;
};

// One step and whom its rows belong to.
struct PlannedStep {
  StepPlan plan;
  int num_drafts = 0;                    // of all rows
  std::vector<SequenceState*> rows;      // [plan.num_rows]
  std::vector<SequenceState*> admitted;  // got their slot now; set it up before the launch
};

class Scheduler {
 public:
  // Bounds that leave a prefill row room in any plan, beside one new block of each decode row.
  static constexpr int kMaxReusedBlocks = (StepPlan::kMaxBlockIds - StepPlan::kMaxRows) / 2;
  static constexpr int kMaxChunkBlocks = kMaxReusedBlocks - 1;
  // Each beam may get an open and a spare block of each KV group in one step.
  static constexpr int kMaxBeamWidth = StepPlan::kMaxUpdates / 4;
  static constexpr int MaxBeamWidth(int num_kv_groups) {
    return std::min(kMaxBeamWidth, StepPlan::kMaxUpdates / (2 * num_kv_groups));
  }
  // Prompts are not cut into less than that for the sake of stages: the weights are read for each
  // step, and this many tokens take longer than that.
  static constexpr int kLeastStageTokens = 64;
  // Where layers see the whole text, chunks of prompts are not cut to less for the sake of layers
  // with windows: those keep more blocks by it, the others are computed at full speed.
  static constexpr int kLeastMixedChunk = 2048;

  Scheduler(const SchedulerOptions& options, kv_cache::KvCache* kv_cache);

  // Queues in that order. Not owned.
  void Add(SequenceState* sequence);

  // Fills `step` with the next step, all but its id; no rows when there is nothing to do. A
  // sequence whose last token is planned appears in no later plan, so lengths known in advance
  // waste no row. With `may_start` false nobody new is admitted, paused sequences are.
  void Plan(const PrefillShare& share, PlannedStep* step, bool may_start = true);

  // Takes back row `row` of the plan just made; its sequence must be Removed.
  static void DropRow(int row, PlannedStep* step);

  // The sequence is in no later plan. Its slot and blocks stay until Release.
  void Remove(SequenceState* sequence);

  // Beam j of a beam search goes on from beam parents[j], [num_beams]; K and V of the sequence's
  // first `num_tokens` tokens are written.
  void Reorder(SequenceState* sequence, std::span<const int32_t> parents, int num_tokens);

  // After the last step that holds a Removed sequence was collected: offers the blocks of its first
  // `num_valid_tokens` tokens for reuse, gives blocks and slot back.
  void Release(SequenceState* sequence, int num_valid_tokens);

  // A row was planned for its longest outcome and yielded `num_unused` tokens less.
  static void Reconcile(SequenceState* sequence, int num_unused) {
    sequence->num_planned_tokens -= num_unused;
  }

  // The K and V of the sequence's first `num_valid_tokens` tokens are written.
  void Publish(SequenceState* sequence, int num_valid_tokens);

  // The same, of all rows that were collected: gives back the blocks that no later token sees, and
  // what was set aside for chunks of a prompt that is computed.
  void Advance(SequenceState* sequence, int num_kv_tokens);

  // The longest prefill chunk. Where tokens see a window alone, it is as long as that, so that a
  // long prompt holds no more than a few windows of blocks.
  struct KeptTokens {
    int widest = 0;          // window of a KV group; 0: none has one
    bool keeps_all = false;  // another group has none
  };
  static int MaxChunkTokens(const SchedulerOptions& options, const KeptTokens& kept,
                            int block_size);

  // Rows of a step, but that all beams of a search are in one: of a device of `depth` stages that
  // does not look ahead one stage's share of `max_rows`.
  static int MaxStepRows(int max_rows, int depth) { return (max_rows + depth - 1) / depth; }

  // From the next plan on until GoOn the sequence has no decode rows; a prompt that is being
  // computed goes on, up to its first token. No effect on one that is held, or Removed.
  void Hold(SequenceState* sequence);
  void GoOn(SequenceState* sequence);  // no effect on one that is not held
  // A held one that runs gives up slot and blocks, as when others need its blocks. No effect on one
  // that does not run.
  void PutAside(SequenceState* sequence);

  // Nobody who runs is in the next plan: they are paused, as when others need their blocks, and are
  // admitted again by later plans.
  void PauseAll();
  // What paused sequences hold returns once no step in flight has them; Plan does so, too.
  void ParkPaused();
  bool holds_blocks() const { return !running_.empty() || num_leaving() > 0; }

  int num_waiting() const { return waiting_.size(); }  // new and paused ones
  int num_running() const { return static_cast<int>(running_.size()); }
  bool runs_only_held() const {  // also where nobody runs
    return std::ranges::all_of(running_, [](const auto* s) { return s->is_held; });
  }
  int num_running_rows() const { return num_running_rows_; }  // at most a row for each beam
  int num_paused() const { return num_paused_; }
  int64_t num_pauses() const { return num_pauses_; }  // since the start
  SequenceState* first_waiting() const { return waiting_.first(); }

 private:
  struct Budget {
    int tokens;   // left of max_num_tokens
    int prefill;  // left of the step-time goal's share
    bool first;   // no prefill row yet: the share is stretched to one block

    bool has_room() const { return tokens > 0 && (first || prefill > 0); }
    void Take(int num_tokens) {
      tokens -= num_tokens;
      prefill -= num_tokens;
      first = false;
    }
  };
  struct Chunk {
    SequenceState* sequence;
    int num_tokens;
  };

  // scheduler.cc
  void PlanDecodeRows(PlannedStep* step);
  int StageRows() const;
  int RoomForDrafts() const;
  int MaxAheadTokens(const SequenceState& sequence, int num_kv_tokens) const;
  bool UpdatesFit(SequenceState& sequence, int num_tokens, const StepPlan& plan) const;
  void AddRow(SequenceState* sequence, int num_query_tokens, int num_drafts, bool is_prefill,
              bool yields, PlannedStep* step);
  void SendBlocks(SequenceState* sequence, StepPlan* plan);
  static void SendUpdate(SlotId slot, int group, int first_idx, std::span<const BlockId> blocks,
                         StepPlan* plan);
  void StopRunning(SequenceState* sequence);
  void GiveBack(SequenceState* sequence, int num_valid_tokens);

  // prefill_rows.cc
  int StageTokens() const;
  void PlanPrefillInOrder(Budget budget, PlannedStep* step);
  void PlanPrefillEqually(Budget budget, PlannedStep* step);
  int ChunkSize(const SequenceState& sequence, int num_taken, const Budget& budget,
                int at_most) const;
  bool AddPrefillRow(SequenceState* sequence, int num_tokens, PlannedStep* step);

  // capacity.cc
  bool Admit(PlannedStep* step);
  void FormBatch(PlannedStep* step);
  void TakeSlots(SequenceState* sequence);
  bool MayAdmit(const SequenceState& sequence) const;
  // Whether it may start in this step behind others of so many rows, where it finds blocks.
  bool HasPlace(const SequenceState& sequence, int num_rows_before) const;
  bool StartBlocks(SequenceState* sequence);
  bool PrefixIsBeingComputed(const SequenceState& sequence) const;
  int NumSpareBlocks() const;
  bool ReserveRow(SequenceState* sequence, int num_tokens);
  void Pause(SequenceState* sequence);
  void Park(SequenceState* sequence);
  int num_leaving() const { return num_removed_ + static_cast<int>(pausing_.size()); }

  SchedulerOptions options_;
  kv_cache::KvCache* kv_cache_;
  int max_running_;
  int max_step_rows_;
  size_t next_decode_ = 0;  // in running_, of a device of stages: who had no room in the last step
  int chunk_unit_;          // the largest block size
  int max_chunk_;
  // MAX_UTILIZATION looks so many steps ahead: a newcomer is admitted when nobody who runs would
  // lack a block for it. A fraction of a block, so that hardly any memory lies idle.
  int lookahead_;
  std::vector<SlotId> free_slots_;
  std::vector<SequenceState*> running_;  // in order
  int num_running_rows_ = 0;
  WaitingLine waiting_;
  std::vector<SequenceState*> pausing_;  // hold slot and blocks until no row is in flight
  int num_removed_ = 0;                  // Removed and not Released, with slot and blocks
  int num_paused_ = 0;                   // pausing, or waiting to resume
  int64_t num_pauses_ = 0;
  std::vector<Chunk> chunks_;               // PlanPrefillEqually's
  const SequenceState* blocked_ = nullptr;  // did not fit when the cache had blocked_version_
  uint64_t blocked_version_ = 0;

  // Of the plan being made.
  bool may_start_ = true;
  bool is_short_of_blocks_ = false;  // somebody goes without a row: nobody is admitted
};

}  // namespace inflight::scheduler
