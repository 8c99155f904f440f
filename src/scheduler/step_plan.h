// SPDX-License-Identifier: Apache-2.0
// What one step does: which slots take part, how many tokens each, which KV blocks they gained.
//
// A StepPlan is flat, without pointers and below 64 KB, and is the same bytes for every rank, so
// that it can be copied to pinned memory or broadcast as it is. What belongs to a request (prompt
// ids, sampling parameters, words) went to the device once, as a SlotSetup; the plan names slots
// and ranges only.
//
// The host plans bounds, the device knows: of decode rows the device derives ids, positions,
// sequence lengths and slot mapping from the slot's own length and last tokens. A row yields 0..n
// tokens; blocks are reserved for the longest outcome, and Collect reconciles.
//
// A beam search has one row while it computes its prompt, and from then on one for each beam,
// next to each other in the order of the beams.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace inflight::scheduler {

using SlotId = int32_t;   // index of a sequence's state on the device: [0, max_slots)
using BlockId = int32_t;  // index of a KV block in its group's pool

// One slot's part of a step.
struct PlanRow {
  SlotId slot = 0;
  int32_t num_query_tokens = 0;  // >= 1
  // Prefill: the row computes known tokens [first_position, first_position + num_query_tokens) of
  // the slot. Decode: where the row begins if those before it yield all they may; the device uses
  // the slot's own length.
  int32_t first_position = 0;
  uint8_t is_prefill = 0;
  uint8_t yields = 0;  // 1: logits of the last token are decoded (decode rows, and the chunk that
                       // completes a prompt)
  // 1: decoding of this row waits for LateInputs (masks of guides).
  uint8_t has_late_inputs = 0;
  // The last so many of num_query_tokens are drafts, which follow what the slot knows: at most so
  // many, the device may have fewer. Only where the row yields, 1 + those of them that it accepts.
  uint8_t num_draft_tokens = 0;
};

// Entries [first_idx, first_idx + num_blocks) of a slot's block table in one KV group become
// block_ids[offset ...]. What beam search does to tables, the device does by itself
// (kv_cache/beam_tables.h).
struct BlockTableUpdate {
  static constexpr int32_t kSpare = -1;  // first_idx: the one block is the slot's spare
  SlotId slot = 0;
  int16_t group = 0;
  int16_t num_blocks = 0;
  int32_t first_idx = 0;
  int32_t offset = 0;
};

// A whole block, to a group's host pool or back; blocks of the pool have the ids behind the group's
// own. Made one after the other before anything else in the step.
struct HostBlockCopy {
  int32_t group = 0;
  BlockId from = 0;
  BlockId to = 0;
};

struct StepPlan {
  static constexpr int kMaxRows = 1024;
  static constexpr int kMaxUpdates = 1024;
  static constexpr int kMaxBlockIds = 7168;
  static constexpr int kMaxCopies = 256;

  int64_t step_id = 0;   // 1, 2, ... in the order of launching
  int32_t num_rows = 0;  // prefill rows after decode rows
  int32_t num_decode_rows = 0;
  int32_t num_tokens = 0;  // sum of num_query_tokens
  int32_t num_yields = 0;
  int32_t num_updates = 0;
  int32_t num_block_ids = 0;
  int32_t num_copies = 0;  // written by the step loop
  std::array<PlanRow, kMaxRows> rows;
  std::array<BlockTableUpdate, kMaxUpdates> updates;
  std::array<BlockId, kMaxBlockIds> block_ids;  // -1: a block that no token to come sees
  std::array<HostBlockCopy, kMaxCopies> copies;
};

static_assert(std::is_trivially_copyable_v<StepPlan>);
static_assert(sizeof(StepPlan) < 64 * 1024);

}  // namespace inflight::scheduler
