// SPDX-License-Identifier: Apache-2.0
// Drafts of a draft model, which the first of several stages has, on their way to the stages behind
// it: the ids behind the tokens of each row that has drafts. They go from rank to rank as rows of
// the residual stream do, before those of the same step; kernels pack and place them.
//
//   the first stage            a stage between              the last stage
//   DraftModel::Draft
//   Hand  ------ids------>     Take ... Hand  ---ids--->    Take, then its step begins
//
// Threads: the executor's.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "comm/communicator.h"
#include "executor/cuda/step_kernels.h"
#include "executor/memory_plan.h"
#include "model/config.h"
#include "scheduler/step_plan.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"

namespace inflight::executor::cuda {

// ids[r] [stride] = the drafts of row r, and back. Places of `ids` behind a row's drafts are
// undefined.
Status PackDrafts(const DraftingRows& rows, const SlotState& slots, int32_t* ids, int stride,
                  cudaStream_t stream);
Status PlaceDrafts(const DraftingRows& rows, const SlotState& slots, const int32_t* ids, int stride,
                   cudaStream_t stream);

class StageDrafts {
 public:
  // Null where no drafts are handed over: of one stage, or of drafts that stages find for
  // themselves. `pipeline`, that of the stage `part`, outlives it.
  static Result<std::unique_ptr<StageDrafts>> Create(const MemoryPlan& plan,
                                                     const model::RankPart& part,
                                                     comm::Communicator* pipeline, Device& device);
  static uint64_t Bytes(const MemoryPlan& plan);

  // Of the stage before, where there is one; behind the tokens of the plan's slots then.
  Status Take(const scheduler::StepPlan& plan, const SlotState& slots, Stream& stream);
  // To the next stage, where there is one.
  Status Hand(const scheduler::StepPlan& plan, const SlotState& slots, Stream& stream);

 private:
  StageDrafts(const model::RankPart& part, comm::Communicator& pipeline, int stride)
      : part_(part), pipeline_(pipeline), stride_(stride) {}
  TensorView Ids(int num_rows) const;

  const model::RankPart part_;
  comm::Communicator& pipeline_;
  const int stride_;  // ids of a row, a multiple of 4
  Buffer ids_;        // [DraftingRows::kMaxRows or max_batch_size, stride] int32
};

}  // namespace inflight::executor::cuda
