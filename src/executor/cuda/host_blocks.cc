// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/host_blocks.h"

#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "executor/kv_storage.h"

namespace inflight::executor::cuda {

Result<HostBlocks> HostBlocks::Create(const MemoryPlan& plan, Device& device) {
  HostBlocks blocks;
  if (plan.num_host_blocks == 0) return blocks;
  Result<PinnedBuffer> memory = PinnedBuffer::Allocate(device, plan.host_pool_bytes());
  if (!memory.ok())
    return memory.status()
        .WithPrefix("kv_cache_host_memory_bytes")
        .WithField("kv_cache_host_memory_bytes");
  blocks.memory_ = *std::move(memory);
  blocks.num_host_blocks_ = plan.num_host_blocks;
  for (int g = 0; g < plan.num_groups(); ++g)
    blocks.shapes_.push_back({.group = g,
                              .first_block = plan.num_scratch_blocks,
                              .num_blocks = static_cast<BlockId>(plan.group(g).num_blocks)});
  return blocks;
}

void HostBlocks::Add(const ops::KvCacheView& kv, int group) {
  if (num_host_blocks_ == 0) return;
  HostPool pool = shapes_[static_cast<size_t>(group)];
  pool.kv = pool.host = kv;
  pool.host.data = memory_.data() + used_bytes_;
  pool.host.num_blocks = num_host_blocks_;
  used_bytes_ += KvBytesPerBlock(kv) * static_cast<uint64_t>(num_host_blocks_);
  CHECK_LE(used_bytes_, memory_.size());
  pools_.push_back(pool);
}

Status HostBlocks::Copy(std::span<const scheduler::HostBlockCopy> copies,
                        cudaStream_t stream) const {
  for (const HostPool& pool : pools_) RETURN_IF_ERROR(CopyHostBlocks(pool, copies, stream));
  return Status::Ok();
}

}  // namespace inflight::executor::cuda
