// SPDX-License-Identifier: Apache-2.0
// The kernels around a draft model's forward passes (draft_model.h). They derive what a pass
// computes from the slots' tokens and put what it drew behind them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "executor/cuda/step_kernels.h"
#include "inflight/status.h"
#include "scheduler/step_plan.h"

namespace inflight::executor::cuda {

// A sequence that a step has drafts of.
struct DraftEntry {
  uint16_t slot = 0;
  uint8_t num_drafts = 0;   // that the model makes: one in each of the first passes
  uint8_t num_planned = 0;  // that the step has rows for
};

// A token of the first pass: `back` tokens before the newest of its slot.
struct DraftToken {
  uint16_t slot = 0;
  int16_t logit = -1;  // the entry that its logits are for; -1: none
  int32_t back = 0;
};

// Pinned memory; a step's is found as its StepArena is.
struct alignas(8) DraftArena {
  int32_t num_tokens = 0;
  int32_t num_entries = 0;  // those with the most drafts first
  DraftEntry entries[scheduler::StepPlan::kMaxRows];
  DraftToken tokens[scheduler::StepPlan::kMaxRows];
};

// Enqueues the inputs of a pass of `num_rows` rows, filled up with rows of the scratch slot: of
// `arena.tokens` in the first one, of an entry's newest draft in those after it, whose number
// `num_passes`, of device memory, counts. The first marks the places of drafts as empty (-1). Ids
// outside the vocabulary are taken as 0.
Status BeginDraftPass(const DraftArena* arenas, const SlotState& slots, const StepTensors& tensors,
                      int32_t* num_passes, bool is_first, int vocab_size, int num_rows,
                      cudaStream_t stream);

// Puts what was drawn for `num_logits` rows behind the tokens of their slots; ends the pass.
Status EndDraftPass(const SlotState& slots, const StepTensors& tensors, int32_t* num_passes,
                    int num_logits, cudaStream_t stream);

// to[i] = from[i], or 0 where that is none of the vocabulary.
Status CopyKnownIds(const int32_t* from, int32_t* to, int count, int vocab_size,
                    cudaStream_t stream);

}  // namespace inflight::executor::cuda
