// SPDX-License-Identifier: Apache-2.0
// Copies of KV blocks that a step needs: open blocks of beams (kv_cache/beam_tables.h), and whole
// blocks to the host pool and back. In the order of the stream.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "inflight/status.h"
#include "kv_cache/beam_tables.h"
#include "ops/kv_cache_view.h"
#include "scheduler/step_plan.h"

namespace inflight::executor::cuda {

// The first tokens of blocks, in all layers and heads of `kv`; ids are the device's. No copy's
// target is another's source.
Status CopyOpenBlocks(const ops::KvCacheView& kv, std::span<const kv_cache::BlockCopy> copies,
                      cudaStream_t stream);

// Whole blocks in all layers of a KV group, one copy after the other; at most StepPlan::kMaxCopies.
// Ids are the plan's: block b of the pool is block b + first_block of `kv`, and from `num_blocks`
// on those of `host`, pinned memory of the same shape.
struct HostPool {
  int group = 0;  // copies of others are not made
  ops::KvCacheView kv;
  ops::KvCacheView host;
  int first_block = 0;
  scheduler::BlockId num_blocks = 0;
};
Status CopyHostBlocks(const HostPool& pool, std::span<const scheduler::HostBlockCopy> copies,
                      cudaStream_t stream);

}  // namespace inflight::executor::cuda
