// SPDX-License-Identifier: Apache-2.0
// The kernels around the products of Medusa's heads (medusa_model.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "decoding/best_logits.h"
#include "executor/cuda/step_kernels.h"
#include "inflight/status.h"
#include "scheduler/step_plan.h"
#include "tensor/tensor_view.h"

namespace inflight::executor::cuda {

// A sequence that a step has a tree of: the first nodes of it.
struct MedusaEntry {
  uint16_t slot = 0;
  uint16_t num_nodes = 0;
};

// Pinned memory; a step's is found as its StepArena is.
struct alignas(8) MedusaArena {
  int32_t num_entries = 0;
  MedusaEntry entries[scheduler::StepPlan::kMaxRows];
};

// Row e = the state of entry e, rows behind the last one zeros: x [num_rows, hidden_size] float32
// and `operand`, the same in the dtype of `states` [num_slots, hidden_size].
Status GatherStates(const MedusaArena* arenas, const SlotState& slots, const TensorView& states,
                    const TensorView& x, const TensorView& operand, cudaStream_t stream);

// x += delta, both float32; `operand` = x rounded to its dtype.
Status AddBlock(const TensorView& x, const TensorView& delta, const TensorView& operand,
                cudaStream_t stream);

// The tokens of the nodes of depth `depth` of each entry, which stand behind those of its slot: of
// choice c the c-th of its `best`, [num_rows] of BestLogits::Bytes(count); the last one where there
// are fewer, token 0 where there is none.
Status PlaceNodes(const MedusaArena* arenas, const SlotState& slots,
                  const decoding::BestLogits* best, int count, int depth, int num_rows,
                  cudaStream_t stream);

}  // namespace inflight::executor::cuda
