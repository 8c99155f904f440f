// SPDX-License-Identifier: Apache-2.0
// The kernels around the forward passes of a head of EAGLE (eagle_model.h). Rows of tensors are
// copied as they are, of any dtype, at multiples of 16 bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "decoding/best_logits.h"
#include "executor/cuda/step_kernels.h"
#include "executor/memory_plan.h"
#include "inflight/status.h"
#include "tensor/tensor_view.h"

namespace inflight::executor::cuda {

// How many features of a slot are kept, of its newest pairs: that of the pair at a place stands in
// the slot's row place % kEagleRing. A power of two.
inline constexpr int kEagleRing = 32;
static_assert(kEagleRing > ops::kMaxTreeDepth, "a step may settle that many and one");

// A pair that a pass computes. Of a draft (TreeOnDevice) of a slot: `feature` is the row of its
// parent in the pass before. In pass 0 pairs are of what the slot knows, and `feature` is how many
// places before the last one a pair stands: behind that, draft 0, stand the drafts of the pass;
// those before it have no nodes, and only their keys and values count.
struct alignas(8) EagleRow {
  uint16_t slot = 0;
  uint8_t draft = 0;
  uint8_t num_nodes = 0;  // of the slot's tree in this step
  int32_t feature = 0;
};

// Pinned memory; a step's is found as its StepArena is. Pass 0 has a row for each sequence that is
// drafted for, of its root, then rows of pairs before these; pass d one for each node of depth d
// that has children.
struct EagleArena {
  static constexpr int kMaxPasses = ops::kMaxTreeDepth;
  static constexpr int kMaxRows = scheduler::StepPlan::kMaxRows + MemoryPlan::kMaxDraftedLogits;

  int32_t begins[kMaxPasses + 1];  // pass p has rows [begins[p], begins[p + 1])
  EagleRow rows[kMaxRows];
};

// The inputs of a pass beside those that it has in common with the step.
struct EagleTensors {
  int32_t* ids = nullptr;           // [max_num_tokens]
  int32_t* positions = nullptr;     // [max_rows] of passes
  int64_t* slot_mapping = nullptr;  // [max_num_tokens]
  int32_t* cu_seqlens_q = nullptr;  // [max_rows + 1] of passes
  int32_t* seq_lens_kv = nullptr;   // [max_rows]
  int32_t* table_rows = nullptr;    // [max_rows]
  int32_t* feature_rows = nullptr;  // [max_rows] of passes
  int32_t* all = nullptr;           // [max_rows] 0, 1, ...
  int32_t* none = nullptr;          // [max_rows] zeros
  uint8_t* tree_shifts = nullptr;   // [max_rows, ops::kMaxTreeDepth] of passes
  int32_t* first_kept = nullptr;    // [num_slots] the first place of the slot with a kept feature
  ops::SlidingWindow sliding;       // of the head's keys
};

// Pairs of slots, so many of each, one behind the other; a kernel's argument.
struct LastPairs {
  static constexpr int kMaxSlots = 512;

  int num_slots = 0;
  struct {
    uint16_t slot;
    uint16_t end;   // one past its last row of the pass; its first is the end of the slot before
    uint16_t back;  // of its last row: how many pairs of the slot stand behind that
  } slots[kMaxSlots];

  int num_rows() const { return num_slots == 0 ? 0 : slots[num_slots - 1].end; }
};

// Behind AcceptTrees: of what a step found, `features` [num_tokens, feature_width], rows of
// `ring` [num_slots * kEagleRing, feature_width] become those of the decode rows' tokens that are
// part of a sequence, and that of each other row's last token.
Status KeepFeatures(const SlotState& slots, const StepTensors& step, const EagleTensors& out,
                    const TensorView& features, const TensorView& ring, int num_decode_rows,
                    int num_rows, cudaStream_t stream);

// Ids and places of the pairs of a step's prompts: (what the model found at a token, the token
// behind it). Those of its decode rows, which come first, become the scratch slot's. Ids of no
// vocabulary are taken as 0.
Status BeginPrompts(const SlotState& slots, const StepTensors& step, const EagleTensors& out,
                    int num_decode_rows, int num_rows, int num_tokens, int vocab_size,
                    cudaStream_t stream);

// Ids, positions, places and features of `pairs`, filled up to `num_rows` with rows of the scratch
// slot, which pairs without a kept feature become too.
Status BeginLastPairs(const LastPairs& pairs, const SlotState& slots, const EagleTensors& out,
                      int vocab_size, int num_rows, cudaStream_t stream);

// The pairs of pass `pass`, filled up to `num_rows` with rows of the scratch slot. A draft's pair
// stands one place before its key in the model's cache.
Status BeginEaglePass(const EagleArena* arenas, int pass, const SlotState& slots,
                      const EagleTensors& out, int vocab_size, int num_rows, cudaStream_t stream);

// to[t] = from[rows[t]], or from[t] where rows are null, in columns [column, column + width of
// `from`) of `to`.
Status CopyRows(const TensorView& from, const int32_t* rows, const TensorView& to, int64_t column,
                cudaStream_t stream);

// The tokens of the children of each row of `pass`: of choice c the c-th of its `best`, [num_rows]
// of BestLogits::Bytes(count), by `token_ids` where that is not null. As PlaceNodes otherwise.
Status PlaceChildren(const EagleArena* arenas, int pass, const SlotState& slots,
                     const decoding::BestLogits* best, int count, const int32_t* token_ids,
                     int num_rows, cudaStream_t stream);

}  // namespace inflight::executor::cuda
