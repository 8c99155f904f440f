// SPDX-License-Identifier: Apache-2.0
// Pinned memory for the blocks of the host pool: those of the KV cache's groups, and beside each of
// the first group what a draft model keeps in it.
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "executor/cuda/kv_copies.h"
#include "executor/memory_plan.h"
#include "tensor/buffer.h"

namespace inflight::executor::cuda {

class HostBlocks {
 public:
  // As many blocks of each group as the plan has; none is no memory. Errors name
  // kv_cache_host_memory_bytes.
  static Result<HostBlocks> Create(const MemoryPlan& plan, Device& device);

  // From here on Copy copies blocks of `kv` too, which has those of the plan's group.
  void Add(const ops::KvCacheView& kv, int group = 0);

  // CopyHostBlocks of each.
  Status Copy(std::span<const scheduler::HostBlockCopy> copies, cudaStream_t stream) const;

  size_t size() const { return memory_.size(); }

 private:
  PinnedBuffer memory_;
  uint64_t used_bytes_ = 0;
  int64_t num_host_blocks_ = 0;
  std::vector<HostPool> shapes_;  // [num_groups] of pools but for their views
  std::vector<HostPool> pools_;
};

}  // namespace inflight::executor::cuda
