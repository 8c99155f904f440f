// SPDX-License-Identifier: Apache-2.0
// Keys and values of accepted drafts, which move from the places that a tree gave them to those of
// their tokens. For kernels with a CTA for each sequence and layer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "executor/cuda/step_kernels.h"
#include "ops/kv_cache_view.h"

namespace inflight::executor::cuda {

struct MovedKv {
  std::byte* data;
  int64_t layer_bytes, block_bytes, head_bytes, token_bytes;
  int num_heads;  // of K and of V
};

inline MovedKv MovedKvOf(const ops::KvCacheView& kv) {
  const auto block_bytes = static_cast<int64_t>(kv.block_bytes());
  const MovedKv moved = {.data = kv.data,
                         .layer_bytes = kv.num_blocks * block_bytes,
                         .block_bytes = block_bytes,
                         .head_bytes = static_cast<int64_t>(kv.head_bytes()),
                         .token_bytes = kv.row() * static_cast<int64_t>(SizeOf(kv.dtype)),
                         .num_heads = 2 * kv.num_kv_heads};
  CHECK_EQ(static_cast<size_t>(moved.token_bytes) % sizeof(uint4), 0U);
  return moved;
}

// Of `slot`, in the layer of the CTA's y: for_each(move) calls move(from, to) with places of the
// text, `to` ascending and none behind its `from`. A thread has the same bytes of every token, so
// that a place is read before it is written.
template <typename ForEach>
__device__ void MoveKv(const MovedKv& kv, int group, const SlotState& slots, int slot,
                       const ForEach& for_each) {
  const int32_t* const table = slots.block_tables + group * slots.tables_of_group() +
                               static_cast<int64_t>(slot) * slots.max_blocks;
  const auto token_chunks = static_cast<int>(kv.token_bytes / sizeof(uint4));
  for (auto i = static_cast<int>(threadIdx.x); i < kv.num_heads * token_chunks;
       i += static_cast<int>(blockDim.x)) {
    std::byte* const head =
        kv.data + blockIdx.y * kv.layer_bytes + i / token_chunks * kv.head_bytes;
    const auto chunk = [&](int place) {
      return reinterpret_cast<uint4*>(head +
                                      int64_t{table[place / slots.block_size]} * kv.block_bytes +
                                      place % slots.block_size * kv.token_bytes) +
             i % token_chunks;
    };
    for_each([&](int from, int to) {
      if (from != to) *chunk(to) = *chunk(from);
    });
  }
}

}  // namespace inflight::executor::cuda
