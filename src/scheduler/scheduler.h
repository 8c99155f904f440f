// SPDX-License-Identifier: Apache-2.0
// Decides what each step does: who is admitted, who runs, how many tokens each, which blocks.
//
// State in, plan out: no clock, no device, no threads. The executor reports what happened to
// sequences and asks for the next plan; several plans may be under way (backend.h, depth).
//
// Policy (spec/engine.md 5.4, 5.5; kernels.md 5.5):
//   capacity   GUARANTEED_NO_EVICT: a sequence starts when the blocks of its full length, less
//   those
//              of its reusable prefix, are free beside what running sequences may still need. The
//              first one that does not fit waits, and all behind it: priority, then arrival.
//   packing    every running decode row, then prefill chunks in order under one token budget.
//   chunks     end on block boundaries until the last; without chunking a prompt is taken whole.
//
//   waiting --Plan--> prefill --last chunk planned--> decode --Remove--> gone --Release-->
//   (nothing)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inflight/request.h"
#include "kv_cache/kv_cache.h"
#include "scheduler/step_plan.h"

namespace inflight::scheduler {

enum class Phase : uint8_t { kIdle, kWaiting, kPrefill, kDecode, kRemoved };

// What the scheduler knows of one sequence; the executor's Sequence is one.
struct SequenceState {
  // Set before Add. `tokens` is appended to by the executor as steps are collected.
  const std::vector<TokenId>* tokens = nullptr;  // prompt, then what was generated
  uint64_t cache_salt = 0;
  float priority = 0.5F;
  uint64_t arrival = 0;  // ties of priority: smaller first
  int max_seq_len = 0;   // prompt + max_tokens

  // Written by the scheduler.
  Phase phase = Phase::kIdle;
  SlotId slot = -1;            // from admission to Release
  int num_prefill_tokens = 0;  // tokens known at admission
  int num_cached_tokens = 0;   // of them, taken from reused blocks
  int num_planned_tokens = 0;  // K and V of tokens [0, n) are reused or computed by steps planned
  kv_cache::SequenceBlocks blocks;
  SequenceState* previous = nullptr;  // in the waiting list
  SequenceState* next = nullptr;
};

struct SchedulerOptions {
  int max_batch_size = 0;  // running sequences, and rows of a step
  int max_num_tokens = 0;  // tokens of a step
  int max_slots = 0;
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
  std::vector<SequenceState*> rows;      // [plan.num_rows]
  std::vector<SequenceState*> admitted;  // got their slot now; set it up before the launch
};

class Scheduler {
 public:
  // Bounds that leave a prefill row room in any plan, beside one new block of each decode row.
  static constexpr int kMaxReusedBlocks = (StepPlan::kMaxBlockIds - StepPlan::kMaxRows) / 2;
  static constexpr int kMaxChunkBlocks = kMaxReusedBlocks - 1;

  Scheduler(const SchedulerOptions& options, kv_cache::KvCache* kv_cache);

  // Queues by priority, then arrival. Not owned.
  void Add(SequenceState* sequence);

  // Fills `step` with the next step, all but its id; no rows when there is nothing to do. A
  // sequence whose last token is planned appears in no later plan, so lengths known in advance
  // waste no row.
  void Plan(const PrefillShare& share, PlannedStep* step);

  // Takes back row `row` of the plan just made; its sequence must be Removed.
  static void DropRow(int row, PlannedStep* step);

  // The sequence is in no later plan. Its slot and blocks stay until Release.
  void Remove(SequenceState* sequence);

  // After the last step that holds a Removed sequence was collected: offers the blocks of its first
  // `num_valid_tokens` tokens for reuse, gives blocks and slot back.
  void Release(SequenceState* sequence, int num_valid_tokens);

  // The K and V of the sequence's first `num_valid_tokens` tokens are written.
  void Publish(SequenceState* sequence, int num_valid_tokens);

  int num_waiting() const { return num_waiting_; }
  int num_running() const { return static_cast<int>(running_.size()); }
  SequenceState* first_waiting() const { return first_waiting_; }

 private:
  struct Budget {
    int tokens;   // left of max_num_tokens
    int prefill;  // left of the step-time goal's share
    bool first;   // no prefill row yet: the share is stretched to one block
  };

  void PlanDecodeRows(PlannedStep* step);
  bool PlanPrefillRow(SequenceState* sequence, Budget* budget, PlannedStep* step);
  bool Admit(SequenceState* sequence);
  bool PrefixIsBeingComputed(const SequenceState& sequence) const;
  int ChunkSize(const SequenceState& sequence, const Budget& budget) const;
  bool UpdatesFit(const SequenceState& sequence, int num_tokens, const StepPlan& plan) const;
  void AddRow(SequenceState* sequence, int num_query_tokens, bool is_prefill, bool yields,
              PlannedStep* step);
  void SendBlocks(SequenceState* sequence, StepPlan* plan);
  void Unlink(SequenceState* sequence);

  SchedulerOptions options_;
  kv_cache::KvCache* kv_cache_;
  int max_running_;
  int chunk_unit_;  // the largest block size
  std::vector<SlotId> free_slots_;
  std::vector<SequenceState*> running_;  // by priority, then arrival
  SequenceState* first_waiting_ = nullptr;
  SequenceState* last_waiting_ = nullptr;
  int num_waiting_ = 0;
  const SequenceState* blocked_ = nullptr;  // did not fit when the cache had blocked_version_
  uint64_t blocked_version_ = 0;
};

}  // namespace inflight::scheduler
