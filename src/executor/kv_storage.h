// SPDX-License-Identifier: Apache-2.0
// Device memory of the KV cache of one executor. Who holds which block is the business of
// kv_cache/.
#pragma once

#include <memory>
#include <span>

#include "inflight/executor.h"
#include "kv_cache/beam_tables.h"
#include "model/config.h"
#include "ops/kv_cache_view.h"
#include "scheduler/step_plan.h"
#include "tensor/buffer.h"
#include "tensor/cpu_pool.h"
#include "tensor/releasable_memory.h"

namespace inflight::executor {

// The shape of one KV group's cache on such a device with no memory behind it; num_blocks is left
// 0.
ops::KvCacheView KvShape(const model::ModelConfig& config, int block_size, DeviceKind device);

// Bytes of one block over all layers.
uint64_t KvBytesPerBlock(const ops::KvCacheView& shape);

// Keys and values of one token, by its place in the pool: block * block_size + offset.
struct TokenMove {
  int64_t from = 0;
  int64_t to = 0;
};

class KvStorage {
 public:
  // `num_blocks` blocks of `shape`; booked in the device's ledger as "kv cache". `can_release`: in
  // memory that can be given back.
  static Result<KvStorage> Create(ops::KvCacheView shape, int64_t num_blocks, Device& device,
                                  bool can_release = false);

  const ops::KvCacheView& view() const { return view_; }
  // Null where it cannot be given back.
  const std::shared_ptr<ReleasableMemory>& releasable() const { return releasable_; }

  // On the CPU: whole blocks in all layers, one copy after the other.
  void CopyBlocks(std::span<const scheduler::HostBlockCopy> copies, CpuPool& pool);

  // On the CPU: what a step of beam search copies, in all layers and heads.
  void Copy(std::span<const kv_cache::BlockCopy> copies, CpuPool& pool);

  // On the CPU: single tokens in all layers and heads, one move after the other.
  void Move(std::span<const TokenMove> moves, CpuPool& pool);

 private:
  Buffer buffer_;
  std::shared_ptr<ReleasableMemory> releasable_;  // in its place, or null
  ops::KvCacheView view_;
};

}  // namespace inflight::executor
