// SPDX-License-Identifier: Apache-2.0
// The kernels around a forward pass: what they derive a step's inputs from, and how the host learns
// that a step is done.
//
//   host                              device
//   SetupSlot: tokens, pinned   --->  SetUpSlot     tokens, num_tokens, an empty block table
//   Launch: DraftingRows        --->  LookUpDrafts  their drafts, behind the slots' tokens
//           StepArena, pinned   --->  BeginStep     block tables; ids, positions of decode rows
//                                     ExpandPrefill the same of prefill rows (steps with prompts)
//                                     forward, sampling: one token joins each slot that yields
//                                     (where drafts are made: in EndStep, with those accepted)
//   Collect: polls the counter  <---  EndStep       StepOutputs, then the counter
//            of a beam search   --->  PlaceBeams    a token, the length, the table of each beam
//
// Arenas, outputs and counter are mapped pinned memory, read and written in place. Inside a graph
// arguments are constant: which arena is a step's is the device's own count of steps, modulo
// kNumArenas.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "executor/text_guesses.h"
#include "inflight/status.h"
#include "ops/attention.h"
#include "ops/kv_cache_view.h"
#include "scheduler/step_plan.h"

namespace inflight::executor::cuda {

// More than the steps in flight of as many stages as there may be, and the one being filled; a
// power of two, so that the modulus is a mask.
inline constexpr int kNumArenas = 16;

// A token of a decode row, in a row of its own: they are decode rows of the operators.
struct DecodeRow {
  uint16_t slot = 0;
  uint16_t draft = 0;  // 0: the newest token of the slot, i: its i-th draft
};

struct PrefillRow {
  int32_t slot = 0;
  int32_t first_position = 0;
  int32_t end_token = 0;   // one past the row's last token in the batch
  int16_t logit = -1;      // which row of the logits is this one's; -1 = does not yield
  int16_t num_drafts = 0;  // the last tokens of the row: their logits follow. The host draws then
};

// block_tables[at] = block, of all KV groups
struct TableEntry {
  int32_t at = 0;
  int32_t block = 0;
};

// Read over the bus, where a trip takes longer than the rest of the kernel: what nearly every step
// has stands in its first lines and is asked for at once.
struct alignas(128) StepArena {
  static constexpr int kFirstEntries = 14;

  int32_t num_rows = 0;         // decode rows first, with those of drafts
  int32_t num_decode_rows = 0;  // row r of these holds token r and has logits r
  int32_t num_entries = 0;
  int32_t num_logits = 0;
  TableEntry first_entries[kFirstEntries];
  DecodeRow decode_rows[scheduler::StepPlan::kMaxRows];
  PrefillRow prefill_rows[scheduler::StepPlan::kMaxRows];
  TableEntry entries[scheduler::StepPlan::kMaxBlockIds];  // those after the first
};
static_assert(offsetof(StepArena, decode_rows) == 128);

// What the host reads of a step, row by row of the logits (decoding::SampledToken).
struct StepOutputs {
  uint64_t begin_ns, end_ns;  // the GPU's clock: the first kernel and the last
  int32_t ids[scheduler::StepPlan::kMaxRows];
  float log_probs[scheduler::StepPlan::kMaxRows];
  float log_probs_all[scheduler::StepPlan::kMaxRows];
  // Where drafts are made, of the first logits of each row: how many of them yielded a token, and
  // how many drafts there were.
  int16_t num_yielded[scheduler::StepPlan::kMaxRows];
  int16_t num_drafted[scheduler::StepPlan::kMaxRows];
  // Where they are trees: bit i: node i was accepted.
  uint64_t accepted[scheduler::StepPlan::kMaxRows];
};

// A tree of drafts (decoding/draft_tree.h) on the device. Draft 0 of a slot is its root, draft
// i + 1 its node i, whose token stands, as its key, i places behind the newest one.
struct TreeOnDevice {
  static constexpr int kMaxDrafts = 64;  // and so the bits of StepOutputs::accepted

  uint8_t parents[kMaxDrafts];  // drafts; of the root unused
  uint8_t choices[kMaxDrafts];
  uint8_t depths[kMaxDrafts];  // of the root 0
  // PagedBatch::tree_shifts of a row of that draft.
  uint8_t shifts[kMaxDrafts][ops::kMaxTreeDepth];
};

// What the device keeps of sequences between steps. The last slot is no sequence's: rows that only
// fill a graph up are its. Its table, as every unused entry of a table, is block 0, the scratch
// block.
struct SlotState {
  int num_slots = 0;  // with the last one
  int max_tokens = 0;
  int max_blocks = 0;
  int block_size = 0;
  int num_groups = 1;               // KV groups
  int32_t* tokens = nullptr;        // [num_slots, max_tokens] prompt, then generated
  int32_t* num_tokens = nullptr;    // [num_slots]
  int32_t* block_tables = nullptr;  // [num_groups, num_slots, max_blocks]
  uint64_t* num_steps = nullptr;    // [1] steps ended since the start
  uint64_t* begin_ns = nullptr;     // [1] when the current one began
  // Of slots whose requests have tables of their own (executor/prompt_tables.h): where the rows of
  // the table begin. Null where no request may have one.
  const std::byte** prompt_tables = nullptr;  // [num_slots]
  int32_t first_row_id = 0;                   // ids from here on are rows
  int64_t row_bytes = 0;
  float forced_acceptance = -1;        // of drafts, whatever they are; below 0: by what is drawn
  const TreeOnDevice* tree = nullptr;  // of which drafts are the first nodes; null: of none

  constexpr int scratch_slot() const { return num_slots - 1; }
  constexpr int64_t tables_of_group() const { return int64_t{num_slots} * max_blocks; }
};

// The inputs of one step, as ops::PagedBatch and model::Batch name them, and what was drawn.
struct StepTensors {
  int32_t* ids = nullptr;              // [max_num_tokens]
  int32_t* positions = nullptr;        // [max_num_tokens]
  const void** prompt_rows = nullptr;  // [max_num_tokens] null as SlotState::prompt_tables
  int64_t* slot_mapping = nullptr;     // [num_groups, slots_of_group]
  int64_t slots_of_group = 0;          // max_num_tokens
  int32_t* cu_seqlens_q = nullptr;     // [max_rows + 1]
  int32_t* seq_lens_kv = nullptr;      // [max_rows]
  int32_t* table_rows = nullptr;       // [max_rows] the row's slot
  int32_t* first_positions = nullptr;  // [max_rows] of prefill rows
  int32_t* logit_rows = nullptr;       // [max_rows]
  int32_t* context_rows = nullptr;     // [max_rows] of logits of prompt tokens, for the host
  int32_t* logit_slots = nullptr;  // [max_rows] the slot that row of the logits is for; -1 = none
  // [max_rows] how many tokens of its slot the row of the logits follows, drafts among them. Null
  // where no drafts are made.
  int32_t* logit_positions = nullptr;
  int32_t* sampled_ids = nullptr;  // [max_rows]
  float* log_probs = nullptr;      // [max_rows]
  float* log_probs_all = nullptr;  // [max_rows]
  // Where drafts are trees. [max_rows, ops::kMaxTreeDepth] of each row of the logits, which is the
  // token's row where it is a decode row's.
  uint8_t* tree_shifts = nullptr;
  // [max_rows] of the first logits of each row: which nodes were accepted, how many there were.
  uint64_t* accepted = nullptr;
  int32_t* num_nodes = nullptr;
};

// `tokens` is pinned memory, [num_tokens], `prompt_table` of the sequence's request or null. Slots
// are set up while no step in flight holds them.
Status SetUpSlot(const SlotState& slots, int slot, const int32_t* tokens, int num_tokens,
                 const std::byte* prompt_table, cudaStream_t stream);

// Where the beams of a search are after a step of it; a kernel's argument.
struct BeamPlaces {
  static constexpr int kMaxBeams = 256;

  int num_beams = 0;
  int num_tokens = 0;  // of each; K and V of the last one do not exist yet
  int32_t slots[kMaxBeams];
  int32_t last_tokens[kMaxBeams];
};

// `tables` and `tokens`, of SlotState's shapes, are pinned memory, where only what is of later
// tokens may change until this has run. Where `tokens` is null the last one of each beam alone is
// written: nothing reads the others.
Status PlaceBeams(const SlotState& slots, const BeamPlaces& places, const int32_t* tables,
                  const int32_t* tokens, cudaStream_t stream);

// values[i] = first + i
Status FillRange(int32_t* values, int first, int count, cudaStream_t stream);

// What a step's inputs are filled up to with rows of the scratch slot, which hold a token each;
// where rows of the step are prefill rows, the first of them holds all the tokens that are left,
// the others none.
struct StepPadding {
  int num_rows = 0;
  int num_tokens = 0;
  int num_logits = 0;
};
// Rows of a step that are to have drafts; a kernel's argument.
struct DraftingRows {
  static constexpr int kMaxRows = 512;

  int num_rows = 0;
  struct {
    uint16_t slot;
    uint16_t num_drafts;
  } rows[kMaxRows];
};

// The decode rows of a plan that have drafts, in their order.
DraftingRows DraftingRowsOf(const scheduler::StepPlan& plan);

// Their drafts behind the tokens of their slots; -1 where there are fewer than planned. What is
// left of a row's guess, where the text went on as guessed and some is left; else as
// decoding/ngram_drafts.h finds them.
Status LookUpDrafts(const DraftingRows& rows, const Guesses& guesses, const SlotState& slots,
                    cudaStream_t stream);

Status BeginStep(const StepArena* arenas, const SlotState& slots, const StepTensors& tensors,
                 const StepPadding& padding, cudaStream_t stream);

// Tokens [num_decode_rows, num_tokens) of rows [num_decode_rows, num_rows), at least one of both.
Status ExpandPrefill(const SlotState& slots, const StepTensors& tensors, int num_decode_rows,
                     int num_rows, int num_tokens, cudaStream_t stream);

// Where drafts are trees, before EndStep: accepts a path of each and appends its tokens, and the
// one behind it, to the slot.
Status AcceptTrees(const SlotState& slots, const StepTensors& tensors, int num_logits,
                   cudaStream_t stream);

// Keys and values of accepted nodes move behind each other, in all layers of `kv`, which is that of
// a KV group (a stage may have none of its layers), as plain steps would have written them; behind
// AcceptTrees.
Status MoveAccepted(const ops::KvCacheView& kv, int group, const SlotState& slots,
                    const StepTensors& tensors, int num_logits, cudaStream_t stream);

// Behind AcceptTrees: of each slot that yields the state from which its newest token was drawn goes
// from `states` [num_tokens, row_bytes] of the step to `kept` [num_slots, row_bytes]. row_bytes: a
// multiple of 16.
Status KeepStates(const StepTensors& tensors, int num_logits, const std::byte* states,
                  std::byte* kept, int64_t row_bytes, cudaStream_t stream);

// Where drafts are made, but for trees: accepts those that were drawn in their places, one after
// the other, and appends them and the token after them to their slots. Hands what was drawn for
// `num_logits` rows to the host and counts the step, for the device and in `num_done` for the host:
// whoever reads that with acquire order finds the step's outputs.
Status EndStep(const SlotState& slots, const StepTensors& tensors, int num_logits,
               StepOutputs* outputs, uint64_t* num_done, cudaStream_t stream);

// Faults for tests: a launch that the runtime refuses; a kernel that traps; one that keeps the
// stream busy for `seconds`.
Status LaunchBadly(cudaStream_t stream);
Status LaunchTrap(cudaStream_t stream);
Status LaunchSpin(int seconds, cudaStream_t stream);

}  // namespace inflight::executor::cuda
