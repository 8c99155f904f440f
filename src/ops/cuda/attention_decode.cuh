// SPDX-License-Identifier: Apache-2.0
// Decode attention over the paged cache, one query token a row; any GPU from compute
// capability 8.0.
//
// A CTA walks through its interval of tiles (attention_kernels.h). Each of its warps takes 16 keys
// of every tile and has a pipeline of its own: cp.async into its part of each stage, no barrier
// between warps but at the end of an item. The copies run ahead across items.
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
// Shared memory: num_stages x 64 keys of K and V (head_dim 128, bf16: 34 KiB each), and the sums of
// 4 queries of each warp. Bytes moved: K and V once, partial sums of the two items cut at the ends
// of an interval.
#pragma once

#include <cuda_runtime.h>

#include <array>

#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/attention_mma.cuh"

namespace inflight::ops::cuda {
namespace decode {

inline constexpr float kSlack = 8;  // binary orders by which a score may exceed the running maximum
inline constexpr unsigned kAllLanes = 0xffffffffU;

// T: what products are done in. kTiles: of 8 queries.
template <typename T, bool kIsFp8, int kHeadDim, int kTiles>
class Kernel {
 public:
  static constexpr int kWarps = NumWarps(kHeadDim);
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kTileKeys = kWarps * kWarpKeys;

  __device__ explicit Kernel(const DecodeArgs& args, char* shared)
      : a_(args),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        num_item_heads_(args.num_kv_heads * args.heads.tiles_per_kv_head),
        merge_(reinterpret_cast<float*>(shared)),
        stats_(merge_ + kWarps * kMergeQueries * MergePitch(kHeadDim)),
        stages_(SharedAddress(shared) + static_cast<uint32_t>(MergeBytes(kHeadDim)) +
                static_cast<uint32_t>(warp_ * kWarpStageBytes)) {}

  __device__ __forceinline__ void Run() {
    const DecodeInterval& interval = a_.plan.intervals[blockIdx.x];
    const int num_tiles = interval.num_tiles;
    if (num_tiles == 0) return;
    StartCopies(interval);
    interval_tiles_ = interval.interval_tiles;
    Cursor at = {interval.row, interval.head, interval.tile, interval.seq_len};
    int item_begin = static_cast<int>(blockIdx.x) * interval_tiles_ - at.tile;
    int next_seq_len = SeqLen(at.row + 1);
    for (int i = 0; i < a_.num_stages - 1; ++i) CopyNextTile();
    LoadQueries(at);
    ClearSums();
    int stage = 0;
    for (int i = 0; i < num_tiles; ++i) {
      WaitForStage();
      CopyNextTile();
      AddTile(stages_ + static_cast<uint32_t>(stage * kStageBytes), at);
      if (++stage == a_.num_stages) stage = 0;
      const int item_tiles = NumTiles(at.seq_len);
      const bool is_item_end = at.tile + 1 == item_tiles;
      if (!is_item_end && i + 1 < num_tiles) {
        ++at.tile;
        continue;
      }
      const Cursor done = at;
      at.tile = 0;
      if (++at.head == num_item_heads_) {
        at.head = 0;
        ++at.row;
        at.seq_len = next_seq_len;
        next_seq_len = SeqLen(at.row + 1);
      }
      if (i + 1 < num_tiles) LoadQueries(at);  // on their way while the item is finished
      FinishItem(done, item_begin, item_tiles);
      ClearSums();
      item_begin += item_tiles;
    }
    WaitForCopies<0>();
  }

 private:
  static constexpr int kElementBytes = kIsFp8 ? 1 : 2;
  static constexpr int kRowBytes = kHeadDim * kElementBytes;
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kPitch = Pitch(kRowBytes);
  static constexpr int kWarpStageBytes = 2 * kWarpKeys * kPitch;
  static constexpr int kStageBytes = kWarps * kWarpStageBytes;
  static constexpr int kSteps = kHeadDim / 16;  // products over the dimensions of a key
  static constexpr int kQueries = 8 * kTiles;

  struct Cursor {
    int row, head, tile, seq_len;
  };

  __device__ __forceinline__ static int NumTiles(int seq_len) {
    return seq_len > kTileKeys ? (seq_len + kTileKeys - 1) / kTileKeys : 1;
  }
  __device__ __forceinline__ int SeqLen(int row) const {
    return row < a_.num_rows ? __ldg(a_.seq_lens + row) : 1;
  }

  // --- copies: what the next call of CopyNextTile fetches ---

  __device__ __forceinline__ void StartCopies(const DecodeInterval& interval) {
    copies_left_ = interval.num_tiles;
    next_ = {interval.row, interval.head, interval.tile, interval.seq_len};
    table_ = a_.tables + interval.line * a_.table_stride;
    block_ = interval.blocks[warp_];
    LookAtNextRow();
  }

  // Its numbers are loaded a row ahead of their use.
  __device__ __forceinline__ void LookAtNextRow() {
    const int row = next_.row + 1;
    next_row_seq_len_ = SeqLen(row);
    next_row_line_ = row;
    if (a_.table_rows != nullptr && row < a_.num_rows) next_row_line_ = __ldg(a_.table_rows + row);
  }

  // One group of copies, empty behind the interval's end.
  __device__ __forceinline__ void CopyNextTile() {
    if (copies_left_ > 0) {
      CopyTile();
      --copies_left_;
      if (++next_.tile == NumTiles(next_.seq_len)) {
        next_.tile = 0;
        if (++next_.head == num_item_heads_) {
          next_.head = 0;
          ++next_.row;
          next_.seq_len = next_row_seq_len_;
          table_ = a_.tables + next_row_line_ * a_.table_stride;
          LookAtNextRow();
        }
      }
      // One tile ahead of its use, too.
      const int key = next_.tile * kTileKeys + warp_ * kWarpKeys;
      block_ =
          copies_left_ > 0 && key < next_.seq_len ? __ldg(table_ + (key >> a_.block_size_log2)) : 0;
      if (++copy_stage_ == a_.num_stages) copy_stage_ = 0;
    }
    CommitCopies();
  }

  __device__ __forceinline__ void CopyTile() {
    const int key = next_.tile * kTileKeys + warp_ * kWarpKeys;
    const int kv_head = next_.head / a_.heads.tiles_per_kv_head;
    const int offset = key & ((1 << a_.block_size_log2) - 1);
    const std::byte* k = a_.cache + block_ * a_.block_bytes + kv_head * a_.head_bytes +
                         offset * kRowBytes + lane_ * 16;
    const std::byte* v = k + a_.num_kv_heads * a_.head_bytes;
    const uint32_t to = stages_ + static_cast<uint32_t>(copy_stage_ * kStageBytes);
    const int num_keys = next_.seq_len - key;  // beyond them zeros
    constexpr int kCopies = (kWarpKeys * kChunks + 31) / 32;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int chunk = lane_ + 32 * i;
      const int row = chunk / kChunks;
      if (32 * (i + 1) > kWarpKeys * kChunks && row >= kWarpKeys) break;
      const auto at = static_cast<uint32_t>(row * kPitch + chunk % kChunks * 16);
      CopyAsync16(to + at, k + 512 * i, row < num_keys);
      CopyAsync16(to + kWarpKeys * kPitch + at, v + 512 * i, row < num_keys);
    }
  }

  // Until the oldest stage is there; it is num_stages - 1 groups old.
  __device__ __forceinline__ void WaitForStage() {
    switch (a_.num_stages) {
      case 2:
        WaitForCopies<0>();
        break;
      case 3:
        WaitForCopies<1>();
        break;
      case 4:
        WaitForCopies<2>();
        break;
      case 5:
        WaitForCopies<3>();
        break;
      default:
        WaitForCopies<4>();
        break;
    }
    __syncwarp();
  }

  // --- products ---

  // Query n of a tile of 8 is column lane / 4 of B; those beyond the item's heads are 0.
  __device__ __forceinline__ void LoadQueries(const Cursor& at) {
    const int num_queries = NumQueries(at);
    const int j = lane_ % 4;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int query = 8 * tile + lane_ / 4;
      const bool is_used = query < num_queries;
      const auto* q = static_cast<const uint32_t*>(a_.q) +
                      (at.row * a_.q_stride + (FirstHead(at) + query) * kHeadDim) / 2;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t low = 0;
        uint32_t high = 0;
        if constexpr (kIsFp8) {
          if (is_used) {
            const uint2 four = *reinterpret_cast<const uint2*>(q + 8 * step + 2 * j);
            low = a_.q_is_bf16 ? HalvesOfBf16(four.x) : four.x;
            high = a_.q_is_bf16 ? HalvesOfBf16(four.y) : four.y;
          }
        } else if (is_used) {
          low = q[8 * step + j];
          high = q[8 * step + 4 + j];
        }
        q_[tile][step][0] = low;
        q_[tile][step][1] = high;
      }
    }
  }

  __device__ __forceinline__ int FirstHead(const Cursor& at) const {
    const int kv_head = at.head / a_.heads.tiles_per_kv_head;
    return kv_head * a_.group + at.head % a_.heads.tiles_per_kv_head * a_.heads.heads_per_tile;
  }
  __device__ __forceinline__ int NumQueries(const Cursor& at) const {
    const int first = at.head % a_.heads.tiles_per_kv_head * a_.heads.heads_per_tile;
    return min(a_.heads.heads_per_tile, a_.group - first);
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

  __device__ __forceinline__ void AddTile(uint32_t keys, const Cursor& at) {
    const int num_keys = at.seq_len - (at.tile * kTileKeys + warp_ * kWarpKeys);
    if (num_keys <= 0) return;
    float s[kTiles][4];
    Scores(keys, s);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[tile][e] *= a_.scale_log2;
    if (num_keys < kWarpKeys) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (lane_ / 4 + 8 * (e / 2) >= num_keys) s[tile][e] = -INFINITY;
    }
    RaiseMaxima(s);
    uint32_t p[kTiles][2];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[tile][e] = Exp2(s[tile][e] - max_[tile][e % 2]);
        sum_[tile][e % 2] += s[tile][e];
      }
      p[tile][0] = TransposeMatrix(Pack<T>(s[tile][0], s[tile][1]));
      p[tile][1] = TransposeMatrix(Pack<T>(s[tile][2], s[tile][3]));
    }
    AddValues(keys + kWarpKeys * kPitch, p);
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
        uint32_t r[4];  // 16 keys of 32 dimensions; behind the last 16 something unused
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

  __device__ __forceinline__ void RaiseMaxima(const float (&s)[kTiles][4]) {
    bool is_higher = false;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        is_higher |= fmaxf(s[tile][e], s[tile][e + 2]) > max_[tile][e] + kSlack;
    if (!__any_sync(kAllLanes, is_higher)) return;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float highest = fmaxf(s[tile][e], s[tile][e + 2]);
#pragma unroll
        for (int mask = 4; mask < 32; mask *= 2)
          highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, mask));
        highest = fmaxf(highest, max_[tile][e]);
        const float factor = Exp2(max_[tile][e] - highest);
        max_[tile][e] = highest;
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
  // intervals hold parts of the item.
  __device__ __forceinline__ void FinishItem(const Cursor& item, int item_begin, int item_tiles) {
    const int begin = static_cast<int>(blockIdx.x) * interval_tiles_;
    const bool is_split = item_begin < begin || item_begin + item_tiles > begin + interval_tiles_;
    float* partial = is_split ? Partial(static_cast<int>(blockIdx.x), item_begin) : nullptr;
    StoreStats();
    const int num_queries = NumQueries(item);
#pragma unroll
    for (int round = 0; round < kQueries / kMergeQueries; ++round) {
      const int first = round * kMergeQueries;
      if (first >= num_queries) break;
      if (lane_ % 4 / 2 == round % 2) StoreSums(o_[round / 2]);
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kHeadDim; i += kThreads) {
        const int query = first + i / (kHeadDim / 4);
        if (query < num_queries) MergeWarps(item, query, i % (kHeadDim / 4) * 4, partial);
      }
      __syncthreads();
    }
    if (is_split) MergeIntervalsIfLast(item, item_begin, item_tiles, num_queries);
  }

  __device__ __forceinline__ void StoreStats() {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float sum = sum_[tile][e];
#pragma unroll
        for (int mask = 4; mask < 32; mask *= 2) sum += __shfl_xor_sync(kAllLanes, sum, mask);
        if (lane_ < 4) {
          float* to = stats_ + (warp_ * kMaxQueries + 8 * tile + 2 * lane_ + e) * 2;
          to[0] = max_[tile][e];
          to[1] = sum;
        }
      }
  }

  __device__ __forceinline__ void StoreSums(const float (&o)[kSteps][4]) {
    float* to = merge_ + (warp_ * kMergeQueries + lane_ % 2 * 2) * MergePitch(kHeadDim);
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
                                             float* partial) {
    float highest = -INFINITY;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
      highest = fmaxf(highest, stats_[(warp * kMaxQueries + query) * 2]);
    float sum = 0;
    float4 o = {0, 0, 0, 0};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const float* stats = stats_ + (warp * kMaxQueries + query) * 2;
      const float* from =
          merge_ + (warp * kMergeQueries + query % kMergeQueries) * MergePitch(kHeadDim) + dim;
      AddScaled(o, sum, *reinterpret_cast<const float4*>(from), stats[1],
                stats[0] == -INFINITY ? 0 : Exp2(stats[0] - highest));
    }
    if (partial == nullptr) {
      StoreOutput(item, query, dim, o, sum);
      return;
    }
    *reinterpret_cast<float4*>(partial + query * kHeadDim + dim) = o;
    if (dim == 0) {
      partial[kMaxQueries * kHeadDim + query] = highest;
      partial[kMaxQueries * (kHeadDim + 1) + query] = sum;
    }
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
                                              const float4& o, float sum) const {
    const float factor = sum == 0 ? 0 : a_.v_scale / sum;
    const int64_t at =
        (static_cast<int64_t>(item.row) * a_.num_heads + FirstHead(item) + query) * kHeadDim + dim;
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
                                                       int item_tiles, int num_queries) {
    __shared__ bool is_last;
    const int first = item_begin / interval_tiles_;
    const int num_intervals = (item_begin + item_tiles - 1) / interval_tiles_ - first + 1;
    if (threadIdx.x == 0) {
      __threadfence();  // the barrier before this has gathered the writes of all threads
      is_last = atomicAdd(a_.counters + first, 1) == num_intervals - 1;
      if (is_last) a_.counters[first] = 0;
      __threadfence();
    }
    __syncthreads();
    if (!is_last) return;
    for (int i = static_cast<int>(threadIdx.x); i < num_queries * (kHeadDim / 4); i += kThreads)
      MergeIntervals(item, item_begin, first, num_intervals, i / (kHeadDim / 4),
                     i % (kHeadDim / 4) * 4);
  }

  // In the order of intervals, some at a time so that their loads overlap.
  __device__ __forceinline__ void MergeIntervals(const Cursor& item, int item_begin, int first,
                                                 int num_intervals, int query, int dim) const {
    constexpr int kBatch = 8;
    float highest = -INFINITY;
    float sum = 0;
    float4 o = {0, 0, 0, 0};
    for (int begin = 0; begin < num_intervals; begin += kBatch) {
      float4 more[kBatch];
      float more_highest[kBatch];
      float more_sum[kBatch];
      float new_highest = highest;
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        more_highest[i] = -INFINITY;
        if (begin + i >= num_intervals) continue;
        const float* partial = Partial(first + begin + i, item_begin);
        more[i] = __ldcg(reinterpret_cast<const float4*>(partial + query * kHeadDim + dim));
        more_highest[i] = __ldcg(partial + kMaxQueries * kHeadDim + query);
        more_sum[i] = __ldcg(partial + kMaxQueries * (kHeadDim + 1) + query);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) new_highest = fmaxf(new_highest, more_highest[i]);
      if (new_highest == -INFINITY) continue;
      const float factor = Exp2(highest - new_highest);
      highest = new_highest;
      sum *= factor;
      o = {o.x * factor, o.y * factor, o.z * factor, o.w * factor};
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (more_highest[i] != -INFINITY)
          AddScaled(o, sum, more[i], more_sum[i], Exp2(more_highest[i] - highest));
    }
    StoreOutput(item, query, dim, o, sum);
  }

  const DecodeArgs& a_;
  const int warp_, lane_;
  const int num_item_heads_;
  float* const merge_;     // [kWarps][kMergeQueries][MergePitch]
  float* const stats_;     // [kWarps][kMaxQueries][2]: maximum, sum
  const uint32_t stages_;  // this warp's part of stage 0: 16 keys, then their values
  int interval_tiles_ = 0;

  Cursor next_;
  int copies_left_ = 0, copy_stage_ = 0;
  int block_ = 0;  // of the next tile
  const int32_t* table_ = nullptr;
  int next_row_seq_len_ = 1, next_row_line_ = 0;

  uint32_t q_[kTiles][kSteps][2];
  float o_[kTiles][kSteps][4];
  float max_[kTiles][2], sum_[kTiles][2];  // the sum is of this lane's keys
};

template <typename T, bool kIsFp8, int kHeadDim, int kTiles>
__global__ void __launch_bounds__(NumWarps(kHeadDim) * 32, 2)
    RunKernel(const __grid_constant__ DecodeArgs args) {
  extern __shared__ __align__(128) char shared[];
  Kernel<T, kIsFp8, kHeadDim, kTiles>(args, shared).Run();
}

template <typename T, bool kIsFp8, int kHeadDim, int kTiles>
Status Launch(const DecodeArgs& args, const DecodeShape& shape, CudaStream& stream) {
  static SharedMemoryLimit limit;
  RETURN_IF_ERROR(limit.Raise(RunKernel<T, kIsFp8, kHeadDim, kTiles>, shape.shared_bytes, stream));
  RunKernel<T, kIsFp8, kHeadDim, kTiles>
      <<<shape.num_ctas, NumWarps(kHeadDim) * 32, shape.shared_bytes, stream.handle()>>>(args);
  return inflight::cuda::LaunchStatus("decode attention");
}

template <typename T, bool kIsFp8, int kHeadDim>
Status LaunchTiles(const DecodeArgs& args, const DecodeShape& shape, CudaStream& stream) {
  return args.heads.heads_per_tile <= 8 ? Launch<T, kIsFp8, kHeadDim, 1>(args, shape, stream)
                                        : Launch<T, kIsFp8, kHeadDim, 2>(args, shape, stream);
}

}  // namespace decode

template <int kHeadDim>
Status LaunchDecode(const DecodeArgs& args, DType kv, const DecodeShape& shape,
                    CudaStream& stream) {
  if (kv == DType::kF8E4M3) return decode::LaunchTiles<__half, true, kHeadDim>(args, shape, stream);
  if (kv == DType::kF16) return decode::LaunchTiles<__half, false, kHeadDim>(args, shape, stream);
  return decode::LaunchTiles<__nv_bfloat16, false, kHeadDim>(args, shape, stream);
}

}  // namespace inflight::ops::cuda
