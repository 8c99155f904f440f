// SPDX-License-Identifier: Apache-2.0
#include "executor/kv_storage.h"

#include <cstring>

#include "base/status_macros.h"

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

Result<KvStorage> KvStorage::Create(ops::KvCacheView shape, int64_t num_blocks, Device& device,
                                    bool can_release) {
  KvStorage storage;
  shape.num_blocks = num_blocks;
  const uint64_t bytes = KvBytesPerBlock(shape) * static_cast<uint64_t>(num_blocks);
  if (can_release) {
    ASSIGN_OR_RETURN(storage.releasable_, ReleasableMemory::Allocate(device, "kv cache", bytes));
    shape.data = storage.releasable_->data();
  } else {
    ASSIGN_OR_RETURN(storage.buffer_, Buffer::Allocate(device, "kv cache", bytes));
    shape.data = storage.buffer_.data();
  }
  storage.view_ = shape;
  return storage;
}

void KvStorage::CopyBlocks(std::span<const scheduler::HostBlockCopy> copies, CpuPool& pool) {
  if (copies.empty()) return;
  pool.ParallelFor(view_.num_layers, [&](int64_t i) {
    const auto layer = static_cast<int>(i);
    for (const scheduler::HostBlockCopy& copy : copies) {
      std::memcpy(view_.Keys(layer, copy.to, 0), view_.Keys(layer, copy.from, 0),
                  view_.block_bytes());
    }
  });
}

// Tokens of a block lie in groups of 16 (ops/kv_cache_view.h), so that the first ones are the first
// bytes of a head's keys and of its values.
void KvStorage::Copy(std::span<const kv_cache::BlockCopy> copies, CpuPool& pool) {
  constexpr int kGroup = 16;
  pool.ParallelFor(std::ssize(copies) * view_.num_layers, [&](int64_t i) {
    const kv_cache::BlockCopy& copy = copies[static_cast<size_t>(i / view_.num_layers)];
    const auto layer = static_cast<int>(i % view_.num_layers);
    const int num_tokens = (copy.num_tokens + kGroup - 1) / kGroup * kGroup;
    const size_t bytes =
        static_cast<size_t>(num_tokens) * static_cast<size_t>(view_.head_dim) * SizeOf(view_.dtype);
    for (int head = 0; head < view_.num_kv_heads; ++head) {
      std::memcpy(view_.Keys(layer, copy.to, head), view_.Keys(layer, copy.from, head), bytes);
      std::memcpy(view_.Values(layer, copy.to, head), view_.Values(layer, copy.from, head), bytes);
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

void KvStorage::Move(std::span<const TokenMove> moves, CpuPool& pool) {
  if (moves.empty()) return;
  pool.ParallelFor(view_.num_layers, [&](int64_t layer) {
    for (const TokenMove& move : moves) {
      if (SizeOf(view_.dtype) == 4) {
        MoveToken<uint32_t>(view_, static_cast<int>(layer), move);
      } else {
        MoveToken<uint16_t>(view_, static_cast<int>(layer), move);
      }
    }
  });
}

}  // namespace inflight::executor
