// SPDX-License-Identifier: Apache-2.0
// Device memory of the KV cache of one executor. Who holds which block is the business of
// kv_cache/.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "inflight/executor.h"
#include "kv_cache/beam_tables.h"
#include "model/config.h"
#include "ops/kv_cache_view.h"
#include "scheduler/step_plan.h"
#include "tensor/buffer.h"
#include "tensor/cpu_pool.h"
#include "tensor/releasable_memory.h"

namespace inflight::executor {

struct MemoryPlan;

// The shape of a cache of all layers on such a device with no memory behind it; num_blocks is left
// 0.
ops::KvCacheView KvShape(const model::ModelConfig& config, int block_size, DeviceKind device);

// Bytes of one block over all layers of the shape.
uint64_t KvBytesPerBlock(const ops::KvCacheView& shape);

// Keys and values of one token, by its place in its group's pool: block * block_size + offset.
struct TokenMove {
  int64_t from = 0;
  int64_t to = 0;
};

class KvStorage {
 public:
  // `num_blocks` blocks of `shape`, of one KV group; booked in the device's ledger as "kv cache".
  // `can_release`: in memory that can be given back.
  static Result<KvStorage> Create(const ops::KvCacheView& shape, int64_t num_blocks, Device& device,
                                  bool can_release = false);
  // The same of several groups, each with some of the layers of `shape`.
  struct GroupSize {
    int num_layers = 0;  // 0: nothing is stored of it
    int64_t num_blocks = 0;
  };
  static Result<KvStorage> CreateGroups(const ops::KvCacheView& shape,
                                        std::span<const GroupSize> groups, Device& device,
                                        bool can_release = false);

  int num_groups() const { return static_cast<int>(views_.size()); }
  const ops::KvCacheView& view(int group = 0) const { return views_[static_cast<size_t>(group)]; }
  // Null where it cannot be given back.
  const std::shared_ptr<ReleasableMemory>& releasable() const { return releasable_; }

  // On the CPU: whole blocks in all layers of their groups, one copy after the other. Those of
  // groups that are not here are others'.
  void CopyBlocks(std::span<const scheduler::HostBlockCopy> copies, CpuPool& pool);

  // On the CPU: what a step of beam search copies in a group, in all its layers and heads.
  void Copy(int group, std::span<const kv_cache::BlockCopy> copies, CpuPool& pool);

  // On the CPU: single tokens in all layers and heads of a group, one move after the other.
  void Move(int group, std::span<const TokenMove> moves, CpuPool& pool);

 private:
  Buffer buffer_;
  std::shared_ptr<ReleasableMemory> releasable_;  // in its place, or null
  std::vector<ops::KvCacheView> views_;           // [num_groups]
};

// How large the groups of a plan are for an engine of `config`: with blocks of the host pool where
// those are in the same memory, and scratch blocks.
std::vector<KvStorage::GroupSize> KvGroupSizes(const model::ModelConfig& config,
                                               const MemoryPlan& plan);

}  // namespace inflight::executor
