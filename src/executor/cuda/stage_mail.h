// SPDX-License-Identifier: Apache-2.0
// What the last stage of a model on GPUs drew, on its way to the stages before it, whose next steps
// begin with it. Over their memory, by kernels, and the host takes no part; or, where no GPU
// reaches that memory, the host writes the letters that it is told.
//
//   the last stage                     a stage before
//   EndStep; SendDrawn  ---letter--->  TakeDrawn, between two of its steps: tokens, num_tokens
//   RankCall::drawn     ---bytes---->  WriteLetter; TakeDrawn
//                                      MoveDrawn, where drafts were trees: keys and values
//
// A letter for each step, in one of kNumArenas places by the step's number. A place is free: a step
// is begun by a stage once it has taken what was drawn in the one kNumArenas - 1 before it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "executor/cuda/step_kernels.h"
#include "executor/drawn_token.h"
#include "inflight/status.h"
#include "ops/cuda/peers.h"
#include "ops/kv_cache_view.h"
#include "scheduler/step_plan.h"

namespace inflight::executor::cuda {

struct alignas(128) StageLetter {
  uint64_t number;  // the step's, counted from 1 on: written last
  int32_t num_drawn;
  alignas(16) DrawnToken drawn[scheduler::StepPlan::kMaxRows];
};

// A kernel's argument. Of the last stage the boxes of the others; of another one its own.
struct StageMail {
  int num_boxes = 0;
  StageLetter* boxes[ops::cuda::kMaxPeers] = {};  // [kNumArenas] each, zero before the first step
  // In host memory: once it is not 0 no kernel waits any more.
  const uint32_t* abort = nullptr;
};

// Behind the end of a step of `num_logits` rows of logits.
Status SendDrawn(const StageMail& mail, const SlotState& slots, const StepTensors& tensors,
                 int num_logits, cudaStream_t stream);

// The letter of the `step`-th step, into the box of a stage, pinned memory. kInvalidArgument where
// it is longer than a step's.
Status WriteLetter(const StageMail& mail, uint64_t step, std::span<const DrawnToken> drawn);

// What the `step`-th step drew, counted from 0 on by all stages alike, joins the slots.
Status TakeDrawn(const StageMail& mail, const SlotState& slots, uint64_t step, cudaStream_t stream);

// Behind TakeDrawn of a step of `num_logits` rows of logits: as MoveAccepted of the last stage.
Status MoveDrawn(const StageMail& mail, const ops::KvCacheView& kv, int group,
                 const SlotState& slots, uint64_t step, int num_logits, cudaStream_t stream);

}  // namespace inflight::executor::cuda
