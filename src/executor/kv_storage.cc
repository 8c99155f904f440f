// SPDX-License-Identifier: Apache-2.0
#include "executor/kv_storage.h"

#include <cstring>

#include "base/status_macros.h"
#include "executor/memory_plan.h"

namespace inflight::executor {

ops::KvCacheView KvShape(const model::ModelConfig& config, int block_size, DeviceKind device) {
  return {.dtype = model::KvDType(config),
          .num_layers = config.num_layers,
          .num_kv_heads = config.num_kv_heads,
          .block_size = block_size,
          .head_dim = config.head_dim,
          .row_dim = model::KvRowDim(config, device)};
}

uint64_t KvBytesPerBlock(const ops::KvCacheView& shape) {
  return shape.block_bytes() * static_cast<uint64_t>(shape.num_layers);
}

Result<KvStorage> KvStorage::Create(const ops::KvCacheView& shape, int64_t num_blocks,
                                    Device& device, bool can_release) {
  const GroupSize size = {.num_layers = shape.num_layers, .num_blocks = num_blocks};
  return CreateGroups(shape, {&size, 1}, device, can_release);
}

// One group's behind the other's. A block has a multiple of 256 bytes (ops/kv_cache_view.h), what
// kernels ask of where they begin.
Result<KvStorage> KvStorage::CreateGroups(const ops::KvCacheView& shape,
                                          std::span<const GroupSize> groups, Device& device,
                                          bool can_release) {
  KvStorage storage;
  std::vector<uint64_t> begins;
  uint64_t bytes = 0;
  for (const GroupSize& group : groups) {
    ops::KvCacheView& view = storage.views_.emplace_back(shape);
    view.num_layers = group.num_layers;
    view.num_blocks = group.num_blocks;
    begins.push_back(bytes);
    bytes += KvBytesPerBlock(view) * static_cast<uint64_t>(group.num_blocks);
  }
  std::byte* data = nullptr;
  if (can_release) {
    ASSIGN_OR_RETURN(storage.releasable_, ReleasableMemory::Allocate(device, "kv cache", bytes));
    data = storage.releasable_->data();
  } else {
    ASSIGN_OR_RETURN(storage.buffer_, Buffer::Allocate(device, "kv cache", bytes));
    data = storage.buffer_.data();
  }
  for (size_t g = 0; g < groups.size(); ++g) storage.views_[g].data = data + begins[g];
  return storage;
}

std::vector<KvStorage::GroupSize> KvGroupSizes(const model::ModelConfig& config,
                                               const MemoryPlan& plan) {
  const std::vector<int> num_layers = model::KvLayers(config, plan.windows);
  const int64_t beside =
      plan.num_scratch_blocks + (plan.device == DeviceKind::kCpu ? plan.num_host_blocks : 0);
  std::vector<KvStorage::GroupSize> sizes;
  for (int g = 0; g < plan.num_groups(); ++g)
    sizes.push_back({.num_layers = num_layers[static_cast<size_t>(g)],
                     .num_blocks = plan.group(g).num_blocks + beside});
  return sizes;
}

void KvStorage::CopyBlocks(std::span<const scheduler::HostBlockCopy> copies, CpuPool& pool) {
  if (copies.empty()) return;
  for (int g = 0; g < num_groups(); ++g) {
    const ops::KvCacheView& kv = view(g);
    pool.ParallelFor(kv.num_layers, [&](int64_t i) {
      const auto layer = static_cast<int>(i);
      for (const scheduler::HostBlockCopy& copy : copies)
        if (copy.group == g)
          std::memcpy(kv.Keys(layer, copy.to, 0), kv.Keys(layer, copy.from, 0), kv.block_bytes());
    });
  }
}

// Tokens of a block lie in groups of 16 (ops/kv_cache_view.h), so that the first ones are the first
// bytes of a head's keys and of its values.
void KvStorage::Copy(int group, std::span<const kv_cache::BlockCopy> copies, CpuPool& pool) {
  constexpr int kTokenGroup = 16;
  const ops::KvCacheView& kv = view(group);
  pool.ParallelFor(std::ssize(copies) * kv.num_layers, [&](int64_t i) {
    const kv_cache::BlockCopy& copy = copies[static_cast<size_t>(i / kv.num_layers)];
    const auto layer = static_cast<int>(i % kv.num_layers);
    const int num_tokens = (copy.num_tokens + kTokenGroup - 1) / kTokenGroup * kTokenGroup;
    const size_t bytes =
        static_cast<size_t>(num_tokens) * static_cast<size_t>(kv.head_dim) * SizeOf(kv.dtype);
    for (int head = 0; head < kv.num_kv_heads; ++head) {
      std::memcpy(kv.Keys(layer, copy.to, head), kv.Keys(layer, copy.from, head), bytes);
      std::memcpy(kv.Values(layer, copy.to, head), kv.Values(layer, copy.from, head), bytes);
    }
  });
}

namespace {

template <typename Element>
void MoveToken(const ops::KvCacheView& kv, int layer, const TokenMove& move) {
  const int64_t from_block = move.from / kv.block_size;
  const int64_t to_block = move.to / kv.block_size;
  const auto from = static_cast<int>(move.from % kv.block_size);
  const auto to = static_cast<int>(move.to % kv.block_size);
  for (int head = 0; head < kv.num_kv_heads; ++head) {
    const auto* keys = reinterpret_cast<const Element*>(kv.Keys(layer, from_block, head));
    const auto* values = reinterpret_cast<const Element*>(kv.Values(layer, from_block, head));
    auto* to_keys = reinterpret_cast<Element*>(kv.Keys(layer, to_block, head));
    auto* to_values = reinterpret_cast<Element*>(kv.Values(layer, to_block, head));
    for (int d = 0; d < kv.head_dim; ++d) {
      to_keys[kv.KeyIndex(to, d)] = keys[kv.KeyIndex(from, d)];
      to_values[kv.ValueIndex(to, d)] = values[kv.ValueIndex(from, d)];
    }
  }
}

}  // namespace

void KvStorage::Move(int group, std::span<const TokenMove> moves, CpuPool& pool) {
  if (moves.empty()) return;
  const ops::KvCacheView& kv = view(group);
  pool.ParallelFor(kv.num_layers, [&](int64_t layer) {
    for (const TokenMove& move : moves) {
      if (SizeOf(kv.dtype) == 4) {
        MoveToken<uint32_t>(kv, static_cast<int>(layer), move);
      } else {
        MoveToken<uint16_t>(kv, static_cast<int>(layer), move);
      }
    }
  });
}

}  // namespace inflight::executor
