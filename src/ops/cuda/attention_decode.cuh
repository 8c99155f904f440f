// SPDX-License-Identifier: Apache-2.0
// Decode attention over the paged cache, one query token a row; any GPU from compute
// capability 8.0.
//
// A CTA walks through its interval of tiles (attention_kernels.h). Each of its warps takes 16 or 32
// keys of every tile and has a pipeline of its own: cp.async into its part of each stage, no
// barrier between warps but at the end of an item. The copies run ahead across items.
//
//   S^T [16 keys, 8 queries] = K Q^T      K from shared memory, Q^T in registers
//   O^T [head_dim, 8 queries] += V^T P^T  V transposed while it is loaded
//
// so that a group of up to 8 query heads wastes no rows; up to 16 take two such products. Softmax
// is online (arXiv:1805.02867) in base 2; running maxima move only when a score exceeds them by
// 2^8, which the sums in float32 and P in f16 or bf16 bear.
//
// An FP8 cache is multiplied in f16, which holds each of its numbers: 4 bytes of a key's row become
// elements 4j .. 4j+3 of a product's 16, for K and for Q alike, and of V two dimensions of two
// keys.
//
// Sliding windows: the tiles of an item leave out those that are hidden as a whole; of the others
// hidden keys are zeros in shared memory, and their scores -inf. The block of 16 hidden keys is not
// looked at: it may be another sequence's by now.
//
// A soft cap of scores, logits of heads beside their keys, and keys of trees are branches that all
// threads of a warp take or none does.
//
// Shared memory: two stages of a tile's K and V (head_dim 128: 34 KiB each), and the sums of 4
// queries of each warp. Bytes moved: K and V once, partial sums of the two items cut at the ends of
// an interval.
#pragma once

#include <cuda_runtime.h>

#include "base/status_macros.h"
#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/attention_mma.cuh"
#include "ops/cuda/overlap.cuh"

namespace inflight::ops::cuda {
namespace decode {

// T: what products are done in. kTiles: of 8 queries. kVaries: may have a cap, sink_logits and
// tree_shifts.
template <typename T, bool kIsFp8, int kHeadDim, int kTiles, bool kVaries>
class Kernel {
 public:
  __device__ __forceinline__ Kernel(const DecodeArgs& args, char* shared)
      : a_(args),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / 32),
        lane_(thread_ % 32),
        merge_(reinterpret_cast<float*>(shared)),
        stats_(merge_ + 2 * MergeFloats(kHeadDim)),
        stages_(SharedAddress(stats_ + 2 * StatsFloats(kHeadDim)) +
                static_cast<uint32_t>(warp_ * kWarpStageBytes)) {}

  __device__ __forceinline__ void Run() {
    const DecodeInterval* interval = a_.plan.intervals + blockIdx.x;
    const int num_tiles = interval->num_tiles;
    interval_tiles_ = interval->interval_tiles;
    Cursor at = {interval->row,  interval->kv_head, interval->head_tile,
                 interval->tile, interval->seq_len, NumTiles(interval->seq_len)};
    if (num_tiles == 0) return;
    StartCopies(*interval, at);
    CopyNextTile();
    LoadQueries(at);
    ClearSums();
    int item_begin = static_cast<int>(blockIdx.x) * interval_tiles_ - at.tile;
    int next_seq_len = SeqLen(at.row + 1);
    uint32_t stage = stages_;
    for (int left = num_tiles; left > 0;) {
      WaitForCopies<0>();
      __syncwarp();
      CopyNextTile();
      AddTile(stage, SeenKeys(FirstKey(at), at.seq_len));
      stage = OtherStage(stage);
      --left;
      if (at.tile + 1 < at.num_tiles && left > 0) {
        ++at.tile;
        continue;
      }
      const Cursor item = at;
      if (at.NextItem(a_)) {
        at.seq_len = next_seq_len;
        at.num_tiles = NumTiles(at.seq_len);
        next_seq_len = SeqLen(at.row + 1);
      }
      if (left > 0) LoadQueries(at);  // on their way while the item is finished
      FinishItem(item, item_begin);
      ClearSums();
      item_begin += item.num_tiles;
    }
  }

 private:
  static constexpr int kElementBytes = kIsFp8 ? 1 : 2;
  static constexpr int kWarps = NumWarps(kHeadDim);
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kWarpKeys = WarpKeys(kHeadDim, kElementBytes);
  static constexpr int kGroups = kWarpKeys / 16;  // of 16 keys, a warp's
  static constexpr int kTileKeys = TileKeys(kHeadDim, kElementBytes);
  static constexpr int kRowBytes = kHeadDim * kElementBytes;
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kPitch = Pitch(kRowBytes);
  static constexpr int kWarpStageBytes = 2 * kWarpKeys * kPitch;
  static constexpr int kStageBytes = StageBytes(kHeadDim, kElementBytes);
  static constexpr int kSteps = kHeadDim / 16;  // products over the dimensions of a key
  static constexpr int kQueries = 8 * kTiles;
  static constexpr uint32_t kAllKeys = 0xffffffffU >> (32 - kWarpKeys);

  // A tile of the line.
  struct Cursor {
    int row, kv_head, head_tile, tile;
    int seq_len, num_tiles;  // of the row, and of its items

    // To the first tile of the next item; true if it belongs to another row.
    __device__ __forceinline__ bool NextItem(const AttentionArgs& a) {
      tile = 0;
      if (++head_tile < a.heads.tiles_per_kv_head) return false;
      head_tile = 0;
      if (++kv_head < a.num_kv_heads) return false;
      kv_head = 0;
      ++row;
      return true;
    }
  };

  __device__ __forceinline__ int NumTiles(int seq_len) const {
    const int num_tiles =
        max(1, static_cast<int>(static_cast<unsigned>(seq_len + kTileKeys - 1) / kTileKeys));
    if (a_.sliding.window == 0) return num_tiles;
    return num_tiles - HiddenTiles(a_.sliding, seq_len - 1, kTileKeys);
  }
  // This warp's first key of a tile.
  __device__ __forceinline__ int FirstKey(const Cursor& at) const {
    int tile = at.tile;
    if (a_.sliding.window > 0 && tile * kTileKeys >= a_.sliding.num_sinks)
      tile += HiddenTiles(a_.sliding, at.seq_len - 1, kTileKeys);
    return tile * kTileKeys + warp_ * kWarpKeys;
  }
  // Which of this warp's keys from `key` on the last token of a sequence sees: bit i is key + i.
  __device__ __forceinline__ uint32_t SeenKeys(int key, int seq_len) const {
    uint32_t seen = ~BitsFrom(seq_len - key);
    if (a_.sliding.window > 0)
      seen &= ~BitsFrom(a_.sliding.num_sinks - key) | BitsFrom(a_.sliding.First(seq_len - 1) - key);
    return seen & kAllKeys;
  }
  // Bits i >= n.
  __device__ __forceinline__ static uint32_t BitsFrom(int n) {
    return __funnelshift_lc(0, 0xffffffffU, max(n, 0));
  }
  __device__ __forceinline__ int SeqLen(int row) const {
    return row < a_.num_rows ? a_.seq_lens[row] : 1;
  }
  __device__ __forceinline__ uint32_t OtherStage(uint32_t stage) const {
    return 2 * stages_ + kStageBytes - stage;
  }

  // --- copies: what the next call of CopyNextTile fetches ---

  __device__ __forceinline__ void StartCopies(const DecodeInterval& interval, const Cursor& at) {
    copies_left_ = interval.num_tiles;
    next_ = at;
    copy_stage_ = stages_;
    table_ = a_.tables + interval.line * a_.table_stride;
    for (int i = 0; i < kGroups; ++i) blocks_[i] = interval.blocks[warp_ * kGroups + i];
    LookAtNextRow();
  }

  // Its numbers are loaded a row ahead of their use.
  __device__ __forceinline__ void LookAtNextRow() {
    const int row = next_.row + 1;
    next_row_seq_len_ = SeqLen(row);
    next_row_line_ = row;
    if (a_.table_rows != nullptr && row < a_.num_rows) next_row_line_ = a_.table_rows[row];
  }

  __device__ __forceinline__ void CopyNextTile() {
    if (copies_left_ == 0) return;
    const int key = FirstKey(next_);
    const uint32_t seen = SeenKeys(key, next_.seq_len);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) CopyGroup(i, key + 16 * i, seen >> (16 * i) & 0xffff);
    CommitCopies();
    copy_stage_ = OtherStage(copy_stage_);
    --copies_left_;
    if (++next_.tile == next_.num_tiles && next_.NextItem(a_)) {
      next_.seq_len = next_row_seq_len_;
      next_.num_tiles = NumTiles(next_.seq_len);
      table_ = a_.tables + next_row_line_ * a_.table_stride;
      LookAtNextRow();
    }
    // A tile ahead of their use, too.
    const int next_key = FirstKey(next_);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int k = next_key + 16 * i;
      blocks_[i] = copies_left_ > 0 && k < next_.seq_len
                       ? table_[static_cast<unsigned>(k) >> a_.block_size_log2]
                       : 0;
    }
  }

  // Whether keys of the 16 from `key` on may stand elsewhere than at their positions.
  __device__ __forceinline__ bool HasShifts(int key) const {
    return a_.tree_shifts != nullptr && key + 15 >= next_.seq_len - kMaxTreeDepth;
  }

  // CopyGroup of keys of a tree, each of a block of its own.
  __device__ __forceinline__ void CopyTreeGroup(int group, int key, uint32_t seen) const {
    const uint8_t* const shifts = a_.tree_shifts + next_.row * kMaxTreeDepth;
    const uint32_t k_to = copy_stage_ + static_cast<uint32_t>(16 * group * kPitch);
    const uint32_t v_to = k_to + kWarpKeys * kPitch;
    for (unsigned chunk = static_cast<unsigned>(lane_); chunk < 16 * kChunks; chunk += 32) {
      const unsigned row = chunk / kChunks;
      const uint32_t at = row * kPitch + chunk % kChunks * 16;
      const bool is_used = (seen >> row & 1) != 0;
      int place = key + static_cast<int>(row);
      const int back = next_.seq_len - 1 - place;
      if (is_used && back < kMaxTreeDepth) place += shifts[back];
      const int block = is_used ? table_[static_cast<unsigned>(place) >> a_.block_size_log2] : 0;
      const int offset = place & ((1 << a_.block_size_log2) - 1);
      const std::byte* k = a_.cache + block * a_.block_bytes + next_.kv_head * a_.head_bytes +
                           offset * kRowBytes + chunk % kChunks * 16;
      CopyAsync16(k_to + at, k, is_used);
      CopyAsync16(v_to + at, k + a_.num_kv_heads * a_.head_bytes, is_used);
    }
  }

  // 16 keys of one block from `key` on; zeros, and no reading, where bit i of `seen` is 0.
  __device__ __forceinline__ void CopyGroup(int group, int key, uint32_t seen) {
    if constexpr (kVaries) {
      if (HasShifts(key)) return CopyTreeGroup(group, key, seen);
    }
    const int offset = key & ((1 << a_.block_size_log2) - 1);
    const std::byte* k = a_.cache + blocks_[group] * a_.block_bytes +
                         next_.kv_head * a_.head_bytes + offset * kRowBytes + lane_ * 16;
    const std::byte* v = k + a_.num_kv_heads * a_.head_bytes;
    const uint32_t k_to = copy_stage_ + static_cast<uint32_t>(16 * group * kPitch);
    const uint32_t v_to = k_to + kWarpKeys * kPitch;
#pragma unroll
    for (int i = 0; i < (16 * kChunks + 31) / 32; ++i) {
      const unsigned chunk = static_cast<unsigned>(lane_ + 32 * i);
      const unsigned row = chunk / kChunks;
      if (32 * (i + 1) > 16 * kChunks && row >= 16) break;
      const uint32_t at = row * kPitch + chunk % kChunks * 16;
      const bool is_used = (seen >> row & 1) != 0;
      CopyAsync16(k_to + at, k + 512 * i, is_used);
      CopyAsync16(v_to + at, v + 512 * i, is_used);
    }
  }

  // --- products ---

  __device__ __forceinline__ int FirstHead(const Cursor& at) const {
    return at.kv_head * a_.group + at.head_tile * a_.heads.heads_per_tile;
  }
  __device__ __forceinline__ int NumQueries(const Cursor& at) const {
    return min(a_.heads.heads_per_tile, a_.group - at.head_tile * a_.heads.heads_per_tile);
  }

  // Query n of a tile of 8 is column lane / 4 of B. Columns without one repeat the last one: each
  // column has its own sums, and theirs are not looked at.
  __device__ __forceinline__ void LoadQueries(const Cursor& at) {
    const int j = lane_ % 4;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int query = min(8 * tile + lane_ / 4, NumQueries(at) - 1);
      const auto* q = static_cast<const uint32_t*>(a_.q) +
                      (at.row * a_.q_stride + (FirstHead(at) + query) * kHeadDim) / 2;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if constexpr (kIsFp8) {
          const uint2 four = *reinterpret_cast<const uint2*>(q + 8 * step + 2 * j);
          q_[tile][step][0] = four.x;
          q_[tile][step][1] = four.y;
        } else {
          q_[tile][step][0] = q[8 * step + j];
          q_[tile][step][1] = q[8 * step + 4 + j];
        }
      }
    }
    if constexpr (kIsFp8) {
      if (!a_.q_is_bf16) return;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
#pragma unroll
          for (int e = 0; e < 2; ++e) q_[tile][step][e] = HalvesOfBf16(q_[tile][step][e]);
    }
  }

  __device__ __forceinline__ void ClearSums() {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        max_[tile][e] = -INFINITY;
        sum_[tile][e] = 0;
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
#pragma unroll
        for (int e = 0; e < 4; ++e) o_[tile][step][e] = 0;
    }
  }

  // This warp's keys of a tile, of which those in `seen` are seen.
  __device__ __forceinline__ void AddTile(uint32_t keys, uint32_t seen) {
    if (seen == 0) return;
    float s[kGroups][kTiles][4];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      Scores(keys + group * 16 * kPitch, s[group]);
      if constexpr (kVaries) {
        if (a_.cap_scale != 0) Cap(s[group]);
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[group][tile][e] *= a_.scale_log2;
    }
    if (seen != kAllKeys) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if ((seen >> (16 * group + lane_ / 4 + 8 * (e / 2)) & 1) == 0)
              s[group][tile][e] = -INFINITY;
    }
    RaiseMaxima(s);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      uint32_t p[kTiles][2];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        float* w = s[group][tile];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          w[e] = Exp2(w[e] - max_[tile][e % 2]);
          sum_[tile][e % 2] += w[e];
        }
        p[tile][0] = TransposeMatrix(Pack<T>(w[0], w[1]));
        p[tile][1] = TransposeMatrix(Pack<T>(w[2], w[3]));
      }
      AddValues(keys + (kWarpKeys + group * 16) * kPitch, p);
    }
  }

  __device__ __forceinline__ void Cap(float (&s)[kTiles][4]) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[tile][e] = CappedScore(s[tile][e], a_.cap_scale);
  }

  // s[tile]: keys g, g, g+8, g+8 of queries 2j, 2j+1, 2j, 2j+1.
  __device__ __forceinline__ void Scores(uint32_t keys, float (&s)[kTiles][4]) const {
    float odd[kTiles][4];  // two chains of products instead of a long one
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[tile][e] = odd[tile][e] = 0;
    const auto from = keys + static_cast<uint32_t>(lane_ % 16 * kPitch + lane_ / 16 * 16);
    if constexpr (kIsFp8) {
#pragma unroll
      for (int step = 0; step < kSteps; step += 2) {
        uint32_t r[4];  // 16 keys of 32 dimensions; behind the last 16 the 16 before them once more
        LoadMatrices(r, step + 1 < kSteps ? from + step * 16 : from + (step - 1) * 16);
        const int at = step + 1 < kSteps ? 0 : 2;
        const uint32_t even_k[4] = {HalvesOfFp8(r[at]), HalvesOfFp8(r[at + 1]),
                                    HalvesOfFp8(r[at] >> 16), HalvesOfFp8(r[at + 1] >> 16)};
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          Mma<T>(s[tile], even_k, q_[tile][step][0], q_[tile][step][1]);
        if (step + 1 == kSteps) break;
        const uint32_t odd_k[4] = {HalvesOfFp8(r[2]), HalvesOfFp8(r[3]), HalvesOfFp8(r[2] >> 16),
                                   HalvesOfFp8(r[3] >> 16)};
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          Mma<T>(odd[tile], odd_k, q_[tile][step + 1][0], q_[tile][step + 1][1]);
      }
    } else {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t k[4];
        LoadMatrices(k, from + step * 32);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          Mma<T>(step % 2 == 0 ? s[tile] : odd[tile], k, q_[tile][step][0], q_[tile][step][1]);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[tile][e] += odd[tile][e];
  }

  __device__ __forceinline__ void RaiseMaxima(const float (&s)[kGroups][kTiles][4]) {
    float highest[kTiles][2];
    bool is_higher = false;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float h = -INFINITY;
#pragma unroll
        for (int group = 0; group < kGroups; ++group)
          h = fmaxf(h, fmaxf(s[group][tile][e], s[group][tile][e + 2]));
        highest[tile][e] = h;
        is_higher |= h > max_[tile][e] + kSlack;
      }
    if (!__any_sync(kAllLanes, is_higher)) return;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float h = highest[tile][e];
#pragma unroll
        for (int mask = 4; mask < 32; mask *= 2) h = fmaxf(h, __shfl_xor_sync(kAllLanes, h, mask));
        h = fmaxf(h, max_[tile][e]);
        const float factor = Exp2(max_[tile][e] - h);
        max_[tile][e] = h;
        sum_[tile][e] *= factor;
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          o_[tile][step][e] *= factor;
          o_[tile][step][e + 2] *= factor;
        }
      }
  }

  __device__ __forceinline__ void AddValues(uint32_t values, const uint32_t (&p)[kTiles][2]) {
    if constexpr (kIsFp8) {
      const auto from = values + static_cast<uint32_t>(lane_ % 16 * kPitch + lane_ / 16 * 16);
#pragma unroll
      for (int step = 0; step < kSteps; step += 2) {
        uint32_t r[4];
        LoadTransposed(r, step + 1 < kSteps ? from + step * 16 : from + (step - 1) * 16);
        const int at = step + 1 < kSteps ? 0 : 2;
        AddFp8Values(step, r[at], r[at + 1], p);
        if (step + 1 < kSteps) AddFp8Values(step + 1, r[2], r[3], p);
      }
    } else {
      const auto from = values + static_cast<uint32_t>((lane_ % 8 + lane_ / 16 * 8) * kPitch +
                                                       lane_ / 8 % 2 * 16);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t v[4];
        LoadTransposed(v, from + step * 32);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) Mma<T>(o_[tile][step], v, p[tile][0], p[tile][1]);
      }
    }
  }

  // `low` holds dimensions 2g 2g+1 of key 2j, then of key 2j+1; `high` of the keys 8 further on.
  __device__ __forceinline__ void AddFp8Values(int step, uint32_t low, uint32_t high,
                                               const uint32_t (&p)[kTiles][2]) {
    low = __byte_perm(low, 0, 0x3120);
    high = __byte_perm(high, 0, 0x3120);
    const uint32_t v[4] = {HalvesOfFp8(low), HalvesOfFp8(low >> 16), HalvesOfFp8(high),
                           HalvesOfFp8(high >> 16)};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) Mma<T>(o_[tile][step], v, p[tile][0], p[tile][1]);
  }

  // --- the end of an item ---

  // Adds up the warps' sums, four queries at a time, and stores y, or a partial result where other
  // intervals hold parts of the item. What warps exchange alternates between two places: a warp
  // that writes to one again has passed a barrier behind which nobody reads there.
  __device__ __forceinline__ void FinishItem(const Cursor& item, int item_begin) {
    const int begin = static_cast<int>(blockIdx.x) * interval_tiles_;
    const bool is_split =
        item_begin < begin || item_begin + item.num_tiles > begin + interval_tiles_;
    float* partial = is_split ? Partial(static_cast<int>(blockIdx.x), item_begin) : nullptr;
    float* stats = stats_ + stats_place_ * StatsFloats(kHeadDim);
    stats_place_ ^= 1;
    StoreStats(stats);
    const int num_queries = NumQueries(item);
#pragma unroll
    for (int round = 0; round < kQueries / kMergeQueries; ++round) {
      const int first = round * kMergeQueries;
      if (first >= num_queries) break;
      float* sums = merge_ + merge_place_ * MergeFloats(kHeadDim);
      merge_place_ ^= 1;
      if (lane_ % 4 / 2 == round % 2) StoreSums(o_[round / 2], sums);
      __syncthreads();
      for (int i = thread_; i < kHeadDim; i += kThreads) {
        const int query = first + i / (kHeadDim / 4);
        if (query < num_queries)
          MergeWarps(item, query, i % (kHeadDim / 4) * 4, stats, sums, partial);
      }
    }
    if (is_split) MergeIntervalsIfLast(item, item_begin, num_queries);
  }

  __device__ __forceinline__ void StoreStats(float* stats) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float sum = sum_[tile][e];
#pragma unroll
        for (int mask = 4; mask < 32; mask *= 2) sum += __shfl_xor_sync(kAllLanes, sum, mask);
        if (lane_ < 4)
          *reinterpret_cast<float2*>(stats + (warp_ * kMaxQueries + 8 * tile + 2 * lane_ + e) *
                                                 2) = {max_[tile][e], sum};
      }
  }

  __device__ __forceinline__ void StoreSums(const float (&o)[kSteps][4], float* sums) const {
    float* to = sums + (warp_ * kMergeQueries + lane_ % 2 * 2) * MergePitch(kHeadDim);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = e / 2;  // of the product: g or g + 8
        const int dim = 16 * step + (kIsFp8 ? lane_ / 4 * 2 + row : lane_ / 4 + 8 * row);
        to[e % 2 * MergePitch(kHeadDim) + dim] = o[step][e];
      }
  }

  __device__ __forceinline__ void MergeWarps(const Cursor& item, int query, int dim,
                                             const float* stats, const float* sums,
                                             float* partial) const {
    float2 warp_stats[kWarps];
    float highest = -INFINITY;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      warp_stats[warp] = *reinterpret_cast<const float2*>(stats + (warp * kMaxQueries + query) * 2);
      highest = fmaxf(highest, warp_stats[warp].x);
    }
    float sum = 0;
    float4 o = {0, 0, 0, 0};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const float* from =
          sums + (warp * kMergeQueries + query % kMergeQueries) * MergePitch(kHeadDim) + dim;
      const float2 s = warp_stats[warp];
      AddScaled(o, sum, *reinterpret_cast<const float4*>(from), s.y,
                s.x == -INFINITY ? 0 : Exp2(s.x - highest));
    }
    if (partial == nullptr) {
      StoreOutput(item, query, dim, o, sum, highest);
      return;
    }
    *reinterpret_cast<float4*>(partial + query * kHeadDim + dim) = o;
    if (dim == 0)
      *reinterpret_cast<float2*>(partial + kMaxQueries * kHeadDim + 2 * query) = {highest, sum};
  }

  __device__ __forceinline__ static void AddScaled(float4& o, float& sum, const float4& more,
                                                   float more_sum, float factor) {
    o.x = fmaf(more.x, factor, o.x);
    o.y = fmaf(more.y, factor, o.y);
    o.z = fmaf(more.z, factor, o.z);
    o.w = fmaf(more.w, factor, o.w);
    sum = fmaf(more_sum, factor, sum);
  }

  __device__ __forceinline__ void StoreOutput(const Cursor& item, int query, int dim,
                                              const float4& o, float sum, float highest) const {
    const int head = FirstHead(item) + query;
    if constexpr (kVaries) {
      if (a_.sink_logits != nullptr) sum += SinkWeight(a_.sink_logits[head], highest);
    }
    const float factor = sum == 0 ? 0 : __fdividef(a_.v_scale, sum);
    if (dim >= a_.head_dim) return;
    const int64_t at = (static_cast<int64_t>(item.row) * a_.num_heads + head) * a_.head_dim + dim;
    uint2 y;
    if (kIsFp8 ? a_.q_is_bf16 : !std::is_same_v<T, __half>) {
      y = {Pack<__nv_bfloat16>(o.x * factor, o.y * factor),
           Pack<__nv_bfloat16>(o.z * factor, o.w * factor)};
    } else {
      y = {Pack<__half>(o.x * factor, o.y * factor), Pack<__half>(o.z * factor, o.w * factor)};
    }
    *reinterpret_cast<uint2*>(static_cast<__half*>(a_.y) + at) = y;
  }

  // An interval has room for two: of the item that it starts with, and of the one it ends in.
  __device__ __forceinline__ float* Partial(int interval, int item_begin) const {
    const int slot = 2 * interval + (item_begin > interval * interval_tiles_ ? 1 : 0);
    return a_.partials + static_cast<int64_t>(slot) * PartialFloats(kHeadDim);
  }

  __device__ __forceinline__ void MergeIntervalsIfLast(const Cursor& item, int item_begin,
                                                       int num_queries) const {
    __shared__ bool is_last;
    const int first = item_begin / interval_tiles_;
    const int num_intervals = (item_begin + item.num_tiles - 1) / interval_tiles_ - first + 1;
    __syncthreads();  // the partial result is stored
    if (thread_ == 0) {
      is_last = AddOneAcquireRelease(a_.counters + first) == num_intervals - 1;
      if (is_last) a_.counters[first] = 0;
    }
    __syncthreads();
    if (!is_last) return;
    for (int i = thread_; i < num_queries * (kHeadDim / 4); i += kThreads)
      MergeIntervals(item, item_begin, first, num_intervals, i / (kHeadDim / 4),
                     i % (kHeadDim / 4) * 4);
  }

  // In the order of intervals, some at a time so that their loads overlap.
  __device__ __forceinline__ void MergeIntervals(const Cursor& item, int item_begin, int first,
                                                 int num_intervals, int query, int dim) const {
    constexpr int kBatch = kMergeBatch;
    float highest = -INFINITY;
    float sum = 0;
    float4 o = {0, 0, 0, 0};
    for (int begin = 0; begin < num_intervals; begin += kBatch) {
      float4 more[kBatch];
      float2 stats[kBatch];
      float new_highest = highest;
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        stats[i] = {-INFINITY, 0};
        if (begin + i >= num_intervals) continue;
        const float* partial = Partial(first + begin + i, item_begin);
        more[i] = __ldcg(reinterpret_cast<const float4*>(partial + query * kHeadDim + dim));
        stats[i] =
            __ldcg(reinterpret_cast<const float2*>(partial + kMaxQueries * kHeadDim + 2 * query));
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) new_highest = fmaxf(new_highest, stats[i].x);
      if (new_highest == -INFINITY) continue;
      const float factor = Exp2(highest - new_highest);
      highest = new_highest;
      sum *= factor;
      o = {o.x * factor, o.y * factor, o.z * factor, o.w * factor};
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (stats[i].x != -INFINITY)
          AddScaled(o, sum, more[i], stats[i].y, Exp2(stats[i].x - highest));
    }
    StoreOutput(item, query, dim, o, sum, highest);
  }

  const DecodeArgs& a_;
  const int thread_, warp_, lane_;
  float* const merge_;     // [2][kWarps][kMergeQueries][MergePitch]
  float* const stats_;     // [2][kWarps][kMaxQueries][2]: maximum, sum
  const uint32_t stages_;  // this warp's part of stage 0: its keys, then their values
  int merge_place_ = 0, stats_place_ = 0;
  int interval_tiles_ = 0;

  Cursor next_;
  int copies_left_ = 0;
  uint32_t copy_stage_ = 0;
  int blocks_[kGroups];  // of the next tile
  const int32_t* table_ = nullptr;
  int next_row_seq_len_ = 1, next_row_line_ = 0;

  uint32_t q_[kTiles][kSteps][2];
  float o_[kTiles][kSteps][4];
  float max_[kTiles][2], sum_[kTiles][2];  // the sum is of this lane's keys
};

template <typename T, bool kIsFp8, int kHeadDim, int kTiles, bool kVaries>
__global__ void __launch_bounds__(NumWarps(kHeadDim) * 32, kMaxCtasPerSm)
    RunKernel(const __grid_constant__ DecodeArgs args) {
  BeginOverlapped();
  extern __shared__ __align__(128) char shared[];
  Kernel<T, kIsFp8, kHeadDim, kTiles, kVaries>(args, shared).Run();
}

template <typename T, bool kIsFp8, int kHeadDim, int kTiles, bool kVaries>
Status Launch(const DecodeArgs& args, int num_ctas, CudaStream& stream) {
  constexpr int kShared = SharedBytes(kHeadDim, kIsFp8 ? 1 : 2);
  static SharedMemoryLimit limit;
  RETURN_IF_ERROR(limit.Raise(RunKernel<T, kIsFp8, kHeadDim, kTiles, kVaries>, kShared, stream));
  LaunchOverlapped(RunKernel<T, kIsFp8, kHeadDim, kTiles, kVaries>, num_ctas,
                   NumWarps(kHeadDim) * 32, kShared, stream.handle(), args);
  return inflight::cuda::LaunchStatus("decode attention");
}

template <typename T, bool kIsFp8, int kHeadDim, bool kVaries>
Status LaunchTiles(const DecodeArgs& args, int num_ctas, CudaStream& stream) {
  return args.heads.heads_per_tile <= 8
             ? Launch<T, kIsFp8, kHeadDim, 1, kVaries>(args, num_ctas, stream)
             : Launch<T, kIsFp8, kHeadDim, 2, kVaries>(args, num_ctas, stream);
}

template <typename T, bool kIsFp8, int kHeadDim>
Status LaunchVariant(const DecodeArgs& args, int num_ctas, CudaStream& stream) {
  return args.varies() ? LaunchTiles<T, kIsFp8, kHeadDim, true>(args, num_ctas, stream)
                       : LaunchTiles<T, kIsFp8, kHeadDim, false>(args, num_ctas, stream);
}

}  // namespace decode

template <int kHeadDim>
Status LaunchDecode(const DecodeArgs& args, DType kv, int num_ctas, CudaStream& stream) {
  if (kv == DType::kF8E4M3)
    return decode::LaunchVariant<__half, true, kHeadDim>(args, num_ctas, stream);
  if (kv == DType::kF16)
    return decode::LaunchVariant<__half, false, kHeadDim>(args, num_ctas, stream);
  return decode::LaunchVariant<__nv_bfloat16, false, kHeadDim>(args, num_ctas, stream);
}

}  // namespace inflight::ops::cuda
