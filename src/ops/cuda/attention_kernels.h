// SPDX-License-Identifier: Apache-2.0
// Paged attention inside: what the plan of a step holds, and what attention.cc hands to the
// kernels.
//
// Decode. The keys of a decode row and kv head are an *item*, cut into tiles.
// Items stand in one line, by row and then by head; the line of all their tiles is cut into
// intervals of equal length, one per CTA, whatever the lengths of the sequences. An item that
// several intervals share is merged by the CTA that finishes last, in the order of intervals, so
// results do not depend on who that is. Which interval starts where is found on the device: a
// captured graph holds no lengths. With a sliding window an item is the tiles that hold a key which
// is seen: those of the sinks, then those from the window's first key on (HiddenTiles).
//
// Prefill. A tile is a run of query rows of one kv head; row i of a sequence's packed rows is
// head i % group of token i / group, so that a group shares the keys it loads. Keys are taken in
// steps counted from key 0, and a row's sums see the row alone: neither where a chunk begins nor
// what else is in a tile or a step shows in its bits. So a fixed stream has all rows go this way,
// those of decode too.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>

#include "ops/attention.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/shared_memory_limit.h"

namespace inflight::ops::cuda {

// Where the interval of one decode CTA starts. num_tiles 0 = nothing to do.
struct alignas(64) DecodeInterval {
  // The first tile: batch row, item of the row, tile of the item.
  int row, kv_head, head_tile, tile;
  int num_tiles;
  int seq_len, line;   // of the row: its length and its line of the block tables
  int interval_tiles;  // of a full interval; interval i begins at tile i * interval_tiles of the
                       // line
  int blocks[8];       // of the first tile's keys, 16 each
};

// One tile of prefill queries, for all heads. num_tokens 0 = nothing to do.
struct alignas(32) PrefillTile {
  int line;                     // of the block tables
  int first_token, num_tokens;  // of the sequence in this batch
  int first_position;           // of first_token
  int first_row;                // packed rows [first_row, first_row + rows of a tile)
};

inline constexpr int kMaxDecodeCtas = 192 * 4;  // SMs: as in cuda_stream.cc

// One of StreamWorkspace::attention_plans: intervals, then prefill tiles.
struct AttentionPlan {
  DecodeInterval* intervals;  // [kMaxDecodeCtas]
  PrefillTile* tiles;         // [at most num_tokens + num_rows]
};
inline AttentionPlan PlanAt(const StreamWorkspace& workspace, int plan) {
  auto* intervals = reinterpret_cast<DecodeInterval*>(
      workspace.attention_plans + static_cast<size_t>(plan) * workspace.attention_plan_bytes);
  return {intervals, reinterpret_cast<PrefillTile*>(intervals + kMaxDecodeCtas)};
}

// Tiles between the sinks' and the first one that the token at `position` sees.
constexpr int HiddenTiles(const SlidingWindow& sliding, int position, int tile_keys) {
  const int sink_tiles = (sliding.num_sinks + tile_keys - 1) / tile_keys;
  const int hidden = sliding.First(position) / tile_keys - sink_tiles;
  return hidden > 0 ? hidden : 0;
}

// How heads are split over tiles of query rows: a tile takes `heads_per_tile` heads of a kv head,
// `tiles_per_kv_head` of them take all.
struct HeadSplit {
  int heads_per_tile, tiles_per_kv_head;
};
HeadSplit DecodeHeads(int group);   // up to 16 rows a tile
HeadSplit PrefillHeads(int group);  // up to 64

// Sizes of the decode kernel (attention_decode.cuh).
namespace decode {
inline constexpr int kMaxQueries = 16;
inline constexpr int kMergeQueries = 4;  // whose sums the warps exchange at a time
inline constexpr int kStages = 2;
inline constexpr int kMaxCtasPerSm = 2;
inline constexpr int kMergeBatch = 16;  // partial results that are on their way at a time

constexpr int NumWarps(int head_dim) { return head_dim > 128 ? 2 : 4; }
// Keys of a tile that a warp takes: about 8 KiB of K and V.
constexpr int WarpKeys(int head_dim, int element_bytes) {
  return element_bytes == 1 || head_dim == 64 ? 32 : 16;
}
constexpr int TileKeys(int head_dim, int element_bytes) {
  return NumWarps(head_dim) * WarpKeys(head_dim, element_bytes);
}
// Of a row in shared memory: an odd number of 16-byte chunks, so that 8 rows lie in different
// banks.
constexpr int Pitch(int row_bytes) { return (row_bytes / 16 | 1) * 16; }
constexpr int StageBytes(int head_dim, int element_bytes) {
  return 2 * TileKeys(head_dim, element_bytes) * Pitch(head_dim * element_bytes);
}
// Sums that the warps exchange, twice, so that one barrier is enough.
constexpr int MergePitch(int head_dim) { return head_dim + 4; }  // floats
constexpr int MergeFloats(int head_dim) {
  return NumWarps(head_dim) * kMergeQueries * MergePitch(head_dim);
}
constexpr int StatsFloats(int head_dim) { return NumWarps(head_dim) * kMaxQueries * 2; }
constexpr int SharedBytes(int head_dim, int element_bytes) {
  return 2 * (MergeFloats(head_dim) + StatsFloats(head_dim)) * static_cast<int>(sizeof(float)) +
         kStages * StageBytes(head_dim, element_bytes);
}
constexpr int PartialFloats(int head_dim) { return kMaxQueries * (head_dim + 2); }
}  // namespace decode

// Of a decode launch; the same in the plan and in the kernel.
struct DecodeShape {
  int tile_keys;
  int num_ctas;
};
DecodeShape ShapeOfDecode(const KvCacheView& kv, const CudaStream& stream);

// The batch as the kernels of this stream see it: of a fixed one no row is a decode row.
inline PagedBatch AsRun(PagedBatch batch, const CudaStream& stream) {
  if (stream.is_fixed()) batch.num_decode_rows = 0;
  return batch;
}

inline constexpr int kPrefillTileRows = 128;
// No batch of these bounds has more.
int MaxPrefillTiles(const PagedBatch& batch, int group);

// Of what the host can see of a batch; those of the plan and of attention alike.
Status ValidateForAttention(const PagedBatch& batch, const KvCacheView& kv, int num_heads,
                            const SlidingWindow& sliding, int plan, const CudaStream& stream);

// What both kernels read.
struct AttentionArgs {
  const void* q;           // [num_tokens][q_stride]
  int64_t q_stride;        // elements
  void* y;                 // [num_tokens][num_heads * head_dim]
  bool q_is_bf16;          // dtype of q and y, otherwise f16
  int head_dim;            // of y; what kernels compute behind it is left out
  const std::byte* cache;  // of this layer
  int64_t block_bytes;
  int64_t head_bytes;
  int block_size_log2;
  int num_heads, num_kv_heads, group;
  HeadSplit heads;
  const int32_t* tables;  // [lines][table_stride]
  int64_t table_stride;
  const int32_t* table_rows;  // null: row r has line r
  const int32_t* seq_lens;    // [num_rows]
  // log2(e) times the factor of scores, the scale of K in it, or of capped ones the cap.
  float scale_log2;
  float cap_scale;           // of what is capped, 2 log2(e) in it (CappedScore); 0 = none
  const float* sink_logits;  // [num_heads] or null
  // Of trees (PagedBatch::tree_shifts): [num_tree_rows][kMaxTreeDepth] or null. Token r is row r's.
  const uint8_t* tree_shifts;
  int num_tree_rows;
  bool varies() const { return cap_scale != 0 || sink_logits != nullptr || tree_shifts != nullptr; }
  float v_scale;
  SlidingWindow sliding;
  AttentionPlan plan;
};

struct DecodeArgs : AttentionArgs {
  int num_rows;
  float* partials;    // [2 num_ctas][16 (head_dim + 2)]: o, then m and l of 16 query rows
  int32_t* counters;  // [num_ctas]
};

// The kernels of one head size. `kv` is f16, bf16 or f8e4m3.
template <int kHeadDim>
Status LaunchDecode(const DecodeArgs& args, DType kv, int num_ctas, CudaStream& stream);
template <int kHeadDim>
Status LaunchPrefill(const AttentionArgs& args, DType kv, int max_tiles, CudaStream& stream);

// Tiles of the plan, for each head tile of each kv head.
inline int NumPrefillItems(const AttentionArgs& args, int max_tiles) {
  return max_tiles * args.num_kv_heads * args.heads.tiles_per_kv_head;
}

// Those of head_dim 128 on Hopper (attention_prefill_hopper.cuh), and whether they take a step: not
// those of windows, soft caps and logits of heads, which attention_prefill.cuh alone has.
bool PreferHopperPrefill(const AttentionArgs& args, int max_tiles, const CudaStream& stream);
Status LaunchHopperPrefill(const AttentionArgs& args, DType kv, int max_tiles, CudaStream& stream);

inline int Log2(int power_of_two) { return std::countr_zero(static_cast<unsigned>(power_of_two)); }

}  // namespace inflight::ops::cuda
