// SPDX-License-Identifier: Apache-2.0
// Pinned memory for the blocks of the host pool: those of the KV cache, and beside each what a
// draft model keeps in it.
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
  // As many blocks as the plan has; none is no memory. Errors name kv_cache_host_memory_bytes.
  static Result<HostBlocks> Create(const MemoryPlan& plan, Device& device);

  // From here on Copy copies blocks of `kv` too, which has those of the plan.
  void Add(const ops::KvCacheView& kv);

  // CopyHostBlocks of each.
  Status Copy(std::span<const scheduler::HostBlockCopy> copies, cudaStream_t stream) const;

  size_t size() const { return memory_.size(); }

 private:
  PinnedBuffer memory_;
  uint64_t used_bytes_ = 0;
  int64_t num_host_blocks_ = 0;
  HostPool shape_;  // of each pool but for its views
  std::vector<HostPool> pools_;
};

}  // namespace inflight::executor::cuda
