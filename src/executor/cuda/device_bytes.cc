// SPDX-License-Identifier: Apache-2.0
// What an executor takes of a GPU beside weights and KV cache.
#include <algorithm>

#include "executor/cuda/draft_model.h"
#include "executor/cuda/late_masks.h"
#include "executor/cuda/step_adapters.h"
#include "executor/cuda/step_state.h"
#include "executor/cuda_backend.h"
#include "ops/cuda/peers.h"

namespace inflight::executor {

uint64_t CudaStepBytes(const MemoryPlan& plan) {
  return cuda::StepState::Bytes(plan) + cuda::StepAdapters::Bytes(plan) +
         cuda::LateMasks::Bytes(plan);
}

uint64_t CudaRankBytes(int num_ranks) { return ops::cuda::PeerMailboxBytes(num_ranks); }

uint64_t CudaDraftBytes(const model::ModelConfig& draft, const model::EngineLimits& limits) {
  return cuda::DraftModel::Bytes(draft, limits.max_seq_len, limits.max_num_tokens,
                                 std::max(MemoryPlan::kMaxDraftedLogits, limits.max_batch_size));
}

}  // namespace inflight::executor
