// SPDX-License-Identifier: Apache-2.0
// A rank of a stage that is not the last of its model: it computes its layers and hands the
// residual stream on. It has the slots, their tokens and block tables, and is told the same slots
// and plans as all ranks; what the last stage draws comes to it between two steps (stage_mail.h):
// from that stage's GPU, or told by the host.
#pragma once

#include <memory>

#include "executor/cuda/stage_mail.h"
#include "executor/cuda_backend.h"

namespace inflight::executor::cuda {

// As of LoadCudaRank. `mail`: its own; null: it is told (CudaRank::Hear).
Result<std::unique_ptr<CudaRank>> LoadFrontStage(std::shared_ptr<const model::Engine> engine,
                                                 Device& device, const MemoryPlan& plan,
                                                 const ops::OpTable& ops, ops::OpChoice choice,
                                                 comm::RankGroups groups, const StageMail* mail);

}  // namespace inflight::executor::cuda
