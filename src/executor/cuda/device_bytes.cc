// SPDX-License-Identifier: Apache-2.0
// What an executor takes of a GPU beside weights and KV cache.
#include <algorithm>

#include "executor/cuda/draft_model.h"
#include "executor/cuda/eagle_model.h"
#include "executor/cuda/late_masks.h"
#include "executor/cuda/medusa_model.h"
#include "executor/cuda/stage_drafts.h"
#include "executor/cuda/stage_group.h"
#include "executor/cuda/step_adapters.h"
#include "executor/cuda/step_state.h"
#include "executor/cuda_backend.h"
#include "ops/cuda/peers.h"

namespace inflight::executor {

uint64_t CudaStepBytes(const MemoryPlan& plan) {
  return cuda::StepState::Bytes(plan) + cuda::StepAdapters::Bytes(plan) +
         cuda::LateMasks::Bytes(plan) + cuda::StageDrafts::Bytes(plan);
}

size_t CudaStageBytes(const model::ModelConfig& config, int max_num_tokens) {
  return BytesOf(config.dtype, int64_t{max_num_tokens} * config.hidden_size);
}

uint64_t CudaRankBytes(const model::ModelConfig& config, int max_num_tokens) {
  const model::RankPart& part = config.part;
  uint64_t bytes = part.tp_size > 1 ? ops::cuda::PeerMailboxBytes(part.tp_size) : 0;
  if (part.pp_size > 1)
    bytes += cuda::StageBytes(part.pp_rank, part.pp_size, CudaStageBytes(config, max_num_tokens));
  return bytes;
}

uint64_t CudaDraftBytes(const model::ModelConfig& draft, const model::EngineLimits& limits) {
  return cuda::DraftModel::Bytes(draft, limits.max_seq_len, limits.max_num_tokens,
                                 std::max(MemoryPlan::kMaxDraftedLogits, limits.max_batch_size));
}

uint64_t CudaEagleBytes(const model::EagleConfig& config, const MemoryPlan& plan) {
  return cuda::EagleModel::Bytes(config, plan);
}

uint64_t CudaMedusaBytes(const model::ModelConfig& config, const MemoryPlan& plan) {
  return cuda::MedusaModel::Bytes(config, plan);
}

}  // namespace inflight::executor
