// SPDX-License-Identifier: Apache-2.0
// What the scheduler knows of one sequence; the executor's Sequence is one.
#pragma once

#include <boost/intrusive/set_hook.hpp>
#include <cstdint>
#include <limits>
#include <vector>

#include "inflight/request.h"
#include "kv_cache/kv_cache.h"
#include "scheduler/step_plan.h"

namespace inflight::scheduler {

//   waiting --Plan--> prefill --last chunk planned--> decode --Remove--> removed --Release--> gone
//    ^   ^               |                               |
//    |   |               +------------ paused -----------+
//    |   +-- no row in flight -- pausing
//    |                              | the same, of a held one
//    +--------- GoOn ---- aside <---+---- Hold of one that waits
enum class Phase : uint8_t { kIdle, kWaiting, kPrefill, kDecode, kPausing, kAside, kRemoved };

// Does not look whether its sequence has left the line when that ends, as the line may have too.
using WaitingLineHook =
    boost::intrusive::set_member_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>;

struct SequenceState {
  // Set before Add. `tokens` is appended to by the executor as steps are collected.
  const std::vector<TokenId>* tokens = nullptr;  // prompt, then what was generated
  // Drafts that came with the prompt: they follow it in the row of its last chunk, those for which
  // that step has room.
  int num_prompt_drafts = 0;
  uint64_t cache_salt = 0;
  bool reuses_blocks = true;  // false: all of its prompt is computed
  float priority = 0.5F;
  double turn = 0;       // ties of priority: smaller first (fair_turns.h)
  uint64_t arrival = 0;  // ties of turns: smaller first
  int max_seq_len = 0;   // prompt + max_tokens
  // Beams of a beam search are one sequence: admitted, planned and paused together. Their `tokens`
  // stay the prompt: one that was paused begins again.
  int num_beams = 1;

  // Written by the executor.
  int num_kv_tokens = 0;       // tokens whose K and V collected steps computed or reused
  int num_rows_in_flight = 0;  // rows launched and not collected
  // Drafts of its next decode row, at most; beside the bound of all rows, and of what memory is
  // left of a step.
  int max_draft_tokens = std::numeric_limits<int>::max();

  // Written by the scheduler.
  Phase phase = Phase::kIdle;
  bool is_held = false;            // gets no decode rows, and does not stand in the line
  SlotId slot = -1;                // from admission to Release, or to the next pause; of beam 0
  std::vector<SlotId> beam_slots;  // [num_beams] the same of all beams; empty without beams
  int num_prefill_tokens = 0;      // tokens known at admission
  int num_cached_tokens = 0;       // of them, taken from reused blocks
  // K and V of tokens [0, n) are reused or computed by the steps planned, if each row that is not
  // collected yet yields all it may.
  int num_planned_tokens = 0;
  int max_ahead_tokens = 0;  // planned beyond those that are written, at most
  int num_pauses = 0;        // > 0 at admission: it resumes
  kv_cache::SequenceBlocks blocks;
  WaitingLineHook waiting_line;  // its place there
};

// It ran, and has not resumed since.
inline bool IsPaused(const SequenceState& sequence) {
  const bool is_without_blocks =
      sequence.phase == Phase::kWaiting || sequence.phase == Phase::kAside;
  return sequence.phase == Phase::kPausing || (is_without_blocks && sequence.num_pauses > 0);
}

inline SlotId SlotOf(const SequenceState& sequence, int beam) {
  return beam == 0 ? sequence.slot : sequence.beam_slots[static_cast<size_t>(beam)];
}

// The order of everything: priority, then turns of clients, then arrival.
inline bool ComesBefore(const SequenceState& a, const SequenceState& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  return a.turn != b.turn ? a.turn < b.turn : a.arrival < b.arrival;
}

}  // namespace inflight::scheduler
