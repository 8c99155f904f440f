// SPDX-License-Identifier: Apache-2.0
// Prefill attention over the paged cache, any GPU from compute capability 8.0: FlashAttention-2
// (arXiv:2307.08691) with mma.sync.
//
// A CTA of 4 warps takes one tile of 128 query rows of one kv head (half of one at head_dim 256,
// and where there are few) and walks through the keys up to its last position, 64 at a time (32 at
// head_dim 256). Each warp owns 32 rows (16): scores, softmax and sums stay in its registers, Q is
// read from shared memory for each tile of keys. K and V of the next tile are copied while this one
// is multiplied. Keys behind the last position of the tile are zeros in shared memory, so that
// blocks not written yet may hold anything.
//
// A row's result depends on its own keys alone, to the bit (attention_kernels.h): keys are counted
// from 0, hidden ones add zeros, each row moves its own maximum, and no product and sum are joined
// to one operation in one of the ways through the code and not in another.
//
// Sliding windows: tiles of keys that no row of the tile sees are passed over. In those that some
// row sees, keys that none does are zeros in shared memory, too, since their blocks may be another
// sequence's by now.
//
// Rows of trees, of a fixed stream alone, are tiles of a token each, whose last keys are copied
// from where they stand.
//
// FP8 caches, maxima that move rarely, soft caps and logits of heads: as in attention_decode.cuh.
//
// Shared memory at head_dim 128, 16-bit cache: Q 32 KiB, two stages of K and V 64 KiB.
#pragma once

#include <cuda_runtime.h>

#include "base/status_macros.h"
#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/attention_mma.cuh"
#include "ops/cuda/overlap.cuh"

namespace inflight::ops::cuda {
namespace prefill {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * 32;
inline constexpr int kStages = 2;

// Rows of 16-byte chunks in shared memory, placed so that a chunk of 8 rows in succession lies in
// different banks: exchanged among 8 chunks where they come in eights, else with an odd pitch.
template <int kChunks>
struct SharedRows {
  static constexpr bool kIsSwizzled = kChunks % 8 == 0;
  static constexpr int kPitch = (kIsSwizzled ? kChunks : kChunks | 1) * 16;
  __device__ static uint32_t At(int row, int chunk) {
    return static_cast<uint32_t>(row * kPitch + (kIsSwizzled ? chunk ^ (row & 7) : chunk) * 16);
  }
};

// Tiles of 16 query rows that a warp can have: two where their sums fit its registers.
constexpr int MostRowTiles(int head_dim) { return head_dim > 128 ? 1 : 2; }

// kVaries: may have a soft cap, logits of heads and tree_shifts.
template <typename T, bool kIsFp8, int kHeadDim, int kRowTiles, bool kVaries>
class Kernel {
 public:
  static constexpr int kRows = kWarps * 16 * kRowTiles;
  static constexpr int kParts = kPrefillTileRows / kRows;  // CTAs of a tile of the plan
  static constexpr int kKeys = kHeadDim > 128 ? 32 : 64;
  using QRows = SharedRows<kHeadDim / 8>;
  using KvRows = SharedRows<kHeadDim*(kIsFp8 ? 1 : 2) / 16>;
  static constexpr int kQBytes = kRows * QRows::kPitch;
  static constexpr int kKeyBytes = kKeys * KvRows::kPitch;  // of a stage; as many of values
  static constexpr int kSharedBytes = kQBytes + kStages * 2 * kKeyBytes;

  __device__ explicit Kernel(const AttentionArgs& args, char* shared)
      : a_(args),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / 32),
        lane_(thread_ % 32),
        shared_(shared),
        queries_(SharedAddress(shared)),
        stages_(queries_ + kQBytes) {}

  __device__ __forceinline__ void Run() {
    const int num_item_heads = a_.num_kv_heads * a_.heads.tiles_per_kv_head;
    const int item = static_cast<int>(blockIdx.x) / kParts;
    const PrefillTile& tile = a_.plan.tiles[item / num_item_heads];
    const int item_head = item % num_item_heads;
    first_row_ = tile.first_row + static_cast<int>(blockIdx.x) % kParts * kRows;
    first_token_ = tile.first_token;
    kv_head_ = item_head / a_.heads.tiles_per_kv_head;
    const int first_of_group = item_head % a_.heads.tiles_per_kv_head * a_.heads.heads_per_tile;
    first_head_ = kv_head_ * a_.group + first_of_group;
    num_heads_ = min(a_.heads.heads_per_tile, a_.group - first_of_group);
    num_rows_ = tile.num_tokens * num_heads_;
    if (first_row_ >= num_rows_) return;
    const int last_row = min(first_row_ + kRows, num_rows_) - 1;
    num_keys_ = tile.first_position + last_row / num_heads_ + 1;
    const int first_position = tile.first_position + first_row_ / num_heads_;
    table_ = a_.tables + tile.line * a_.table_stride;
    if constexpr (kVaries) {
      const bool may_be_tree = a_.tree_shifts != nullptr && first_token_ < a_.num_tree_rows;
      shifts_ = may_be_tree ? a_.tree_shifts + first_token_ * kMaxTreeDepth : nullptr;
    }
    const SlidingWindow& sliding = a_.sliding;
    hidden_end_ = sliding.First(first_position);
    const int hidden_tiles = HiddenTiles(sliding, first_position, kKeys);
    skip_begin_ = hidden_tiles == 0 ? -1 : (sliding.num_sinks + kKeys - 1) / kKeys * kKeys;
    skip_end_ = skip_begin_ + hidden_tiles * kKeys;
    const int last_hidden_end = sliding.First(num_keys_ - 1);

    int key = Skip(0);
    FindBlocks(key);
    CopyQueries();
    CopyKeys(key, 0);
    CommitCopies();
    FindBlocks(Skip(key + kKeys));
#pragma unroll
    for (int rows = 0; rows < kRowTiles; ++rows)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row_ + WarpRow() + 16 * rows + 8 * half + lane_ / 4;
        last_key_[rows][half] = tile.first_position + min(row, num_rows_ - 1) / num_heads_;
      }
    ClearSums();
    const bool has_rows = first_row_ + WarpRow() < num_rows_;
    int stage = 0;
    while (key < num_keys_) {
      const int next = Skip(key + kKeys);
      WaitForCopies<0>();
      __syncthreads();
      if (next < num_keys_) {
        CopyKeys(next, stage ^ 1);
        CommitCopies();
        FindBlocks(Skip(next + kKeys));
      }
      const uint32_t keys = stages_ + static_cast<uint32_t>(stage * 2 * kKeyBytes);
      if (has_rows)
        AddTile(keys, key, /*is_masked=*/key + kKeys - 1 > first_position,
                /*is_windowed=*/key < last_hidden_end && key + kKeys > sliding.num_sinks);
      key = next;
      stage ^= 1;
    }
    StoreOutput();
  }

 private:
  static constexpr int kSteps = kHeadDim / 16;
  static constexpr int kKeyTiles = kKeys / 8;
  static constexpr int kKvChunks = kHeadDim * (kIsFp8 ? 1 : 2) / 16;
  static constexpr int kBlocks = kKeys / 16;

  __device__ __forceinline__ int WarpRow() const { return warp_ * 16 * kRowTiles; }

  // `key`, or the first one behind the tiles that no row sees.
  __device__ __forceinline__ int Skip(int key) const {
    return key == skip_begin_ ? skip_end_ : key;
  }

  // --- copies ---

  // Blocks of the 16-key groups from `key` on, a tile ahead of their use.
  __device__ __forceinline__ void FindBlocks(int key) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const int k = key + 16 * i;
      blocks_[i] = k < num_keys_ ? table_[k >> a_.block_size_log2] : 0;
    }
  }

  __device__ __forceinline__ void CopyKeys(int key, int stage) {
    if (key < hidden_end_ && key + kKeys > a_.sliding.num_sinks)
      CopySeenKeys</*kIsWindowed=*/true>(key, stage);
    else
      CopySeenKeys</*kIsWindowed=*/false>(key, stage);
  }

  // Zeros, and no reading, for keys that no row sees.
  template <bool kIsWindowed>
  __device__ __forceinline__ void CopySeenKeys(int key, int stage) {
    const uint32_t k_to = stages_ + static_cast<uint32_t>(stage * 2 * kKeyBytes);
    constexpr int kGroupChunks = 16 * kKvChunks;
    const int64_t values = a_.num_kv_heads * a_.head_bytes;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const int first = key + 16 * i;
      if constexpr (kVaries) {
        if (shifts_ != nullptr && first + 15 >= num_keys_ - kMaxTreeDepth) {
          CopyTreeGroup<kIsWindowed>(i, first, k_to);
          continue;
        }
      }
      const int offset = first & ((1 << a_.block_size_log2) - 1);
      const std::byte* from = a_.cache + blocks_[i] * a_.block_bytes + kv_head_ * a_.head_bytes +
                              offset * (kKvChunks * 16);
#pragma unroll
      for (int c = 0; c < kGroupChunks; c += kThreads) {
        const int chunk = c + thread_;
        if (c + kThreads > kGroupChunks && chunk >= kGroupChunks) break;
        const int row = chunk / kKvChunks;
        const uint32_t at = KvRows::At(16 * i + row, chunk % kKvChunks);
        bool is_used = first + row < num_keys_;
        if (kIsWindowed)
          is_used &= first + row < a_.sliding.num_sinks || first + row >= hidden_end_;
        CopyAsync16(k_to + at, from + chunk * 16, is_used);
        CopyAsync16(k_to + kKeyBytes + at, from + values + chunk * 16, is_used);
      }
    }
  }

  // The i-th 16 keys of a tile, from `first` on, of a row of a tree: each of a block of its own.
  template <bool kIsWindowed>
  __device__ __forceinline__ void CopyTreeGroup(int i, int first, uint32_t k_to) const {
    for (int chunk = thread_; chunk < 16 * kKvChunks; chunk += kThreads) {
      const int row = chunk / kKvChunks;
      const uint32_t at = KvRows::At(16 * i + row, chunk % kKvChunks);
      int place = first + row;
      bool is_used = place < num_keys_;
      if (kIsWindowed) is_used &= place < a_.sliding.num_sinks || place >= hidden_end_;
      const int back = num_keys_ - 1 - place;
      if (is_used && back < kMaxTreeDepth) place += shifts_[back];
      const int block = is_used ? table_[place >> a_.block_size_log2] : 0;
      const int offset = place & ((1 << a_.block_size_log2) - 1);
      const std::byte* from = a_.cache + block * a_.block_bytes + kv_head_ * a_.head_bytes +
                              offset * (kKvChunks * 16) + chunk % kKvChunks * 16;
      CopyAsync16(k_to + at, from, is_used);
      CopyAsync16(k_to + kKeyBytes + at, from + a_.num_kv_heads * a_.head_bytes, is_used);
    }
  }

  __device__ __forceinline__ void CopyQueries() {
    if constexpr (kIsFp8) {
      // 16 dimensions at a time, in the order in which a lane finds those of K.
      for (int i = thread_; i < kRows * kSteps; i += kThreads) {
        const int row = i / kSteps;
        const int step = i % kSteps;
        uint4 q[2] = {};
        if (first_row_ + row < num_rows_) {
          const auto* from = reinterpret_cast<const uint4*>(Query(row) + 16 * step);
          q[0] = from[0];
          q[1] = from[1];
        }
        const uint32_t words[8] = {q[0].x, q[0].y, q[0].z, q[0].w, q[1].x, q[1].y, q[1].z, q[1].w};
        uint32_t halves[8];
#pragma unroll
        for (int w = 0; w < 8; ++w)
          halves[w / 2 + w % 2 * 4] = a_.q_is_bf16 ? HalvesOfBf16(words[w]) : words[w];
#pragma unroll
        for (int c = 0; c < 2; ++c)
          *reinterpret_cast<uint4*>(shared_ + QRows::At(row, 2 * step + c)) = {
              halves[4 * c], halves[4 * c + 1], halves[4 * c + 2], halves[4 * c + 3]};
      }
    } else {
      constexpr int kChunks = kHeadDim / 8;
#pragma unroll 4
      for (int i = thread_; i < kRows * kChunks; i += kThreads) {
        const int row = i / kChunks;
        const bool is_used = first_row_ + row < num_rows_;
        CopyAsync16(queries_ + QRows::At(row, i % kChunks),
                    is_used ? Query(row) + i % kChunks * 8 : a_.q, is_used);
      }
    }
  }

  __device__ __forceinline__ const __half* Query(int row) const {
    const int packed = first_row_ + row;
    return static_cast<const __half*>(a_.q) + (first_token_ + packed / num_heads_) * a_.q_stride +
           (first_head_ + packed % num_heads_) * kHeadDim;
  }

  // --- products ---

  __device__ __forceinline__ void ClearSums() {
#pragma unroll
    for (int rows = 0; rows < kRowTiles; ++rows) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        max_[rows][half] = kLowest;
        sum_[rows][half] = 0;
      }
#pragma unroll
      for (int i = 0; i < 2 * kSteps; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) o_[rows][i][e] = 0;
    }
  }

  __device__ __forceinline__ void AddTile(uint32_t keys, int key, bool is_masked,
                                          bool is_windowed) {
    float s[kRowTiles][kKeyTiles][4];
    Scores(keys, s);
    if constexpr (kVaries) {
      if (a_.cap_scale != 0) Cap(s);
    }
#pragma unroll
    for (int rows = 0; rows < kRowTiles; ++rows)
#pragma unroll
      for (int i = 0; i < kKeyTiles; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          s[rows][i][e] = __fmul_rn(s[rows][i][e], a_.scale_log2);
          if (is_masked && key + 8 * i + lane_ % 4 * 2 + e % 2 > last_key_[rows][e / 2])
            s[rows][i][e] = -INFINITY;
        }
    if (is_windowed) HideKeys(key, s);
    RaiseMaxima(s);
    uint32_t p[kRowTiles][kKeyTiles / 2][4];
#pragma unroll
    for (int rows = 0; rows < kRowTiles; ++rows)
#pragma unroll
      for (int i = 0; i < kKeyTiles; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          s[rows][i][e] = Exp2(s[rows][i][e] - max_[rows][e / 2]);
          sum_[rows][e / 2] += s[rows][i][e];
        }
        p[rows][i / 2][i % 2 * 2] = Pack<T>(s[rows][i][0], s[rows][i][1]);
        p[rows][i / 2][i % 2 * 2 + 1] = Pack<T>(s[rows][i][2], s[rows][i][3]);
      }
    AddValues(keys + kKeyBytes, p);
  }

  __device__ __forceinline__ void Cap(float (&s)[kRowTiles][kKeyTiles][4]) const {
#pragma unroll
    for (int rows = 0; rows < kRowTiles; ++rows)
#pragma unroll
      for (int i = 0; i < kKeyTiles; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[rows][i][e] = CappedScore(s[rows][i][e], a_.cap_scale);
  }

  // Those between the sinks and each row's window.
  __device__ __forceinline__ void HideKeys(int key, float (&s)[kRowTiles][kKeyTiles][4]) const {
#pragma unroll
    for (int rows = 0; rows < kRowTiles; ++rows)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int seen = a_.sliding.First(last_key_[rows][half]);
#pragma unroll
        for (int i = 0; i < kKeyTiles; ++i)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int k = key + 8 * i + lane_ % 4 * 2 + e;
            if (k >= a_.sliding.num_sinks && k < seen) s[rows][i][2 * half + e] = -INFINITY;
          }
      }
  }

  __device__ __forceinline__ void Scores(uint32_t keys, float (&s)[kRowTiles][kKeyTiles][4]) const {
#pragma unroll
    for (int rows = 0; rows < kRowTiles; ++rows)
#pragma unroll
      for (int i = 0; i < kKeyTiles; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[rows][i][e] = 0;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t q[kRowTiles][4];
#pragma unroll
      for (int rows = 0; rows < kRowTiles; ++rows)
        LoadMatrices(q[rows], queries_ + QRows::At(WarpRow() + 16 * rows + lane_ % 16,
                                                   2 * step + lane_ / 16));
      if constexpr (kIsFp8) {
#pragma unroll
        for (int i = 0; i < kKeyTiles; i += 4) {  // 32 keys of 16 dimensions
          uint32_t r[4];
          LoadMatrices(r, keys + KvRows::At(8 * i + lane_, step));
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const uint32_t low = HalvesOfFp8(r[n]);
            const uint32_t high = HalvesOfFp8(r[n] >> 16);
#pragma unroll
            for (int rows = 0; rows < kRowTiles; ++rows) Mma<T>(s[rows][i + n], q[rows], low, high);
          }
        }
      } else {
#pragma unroll
        for (int i = 0; i < kKeyTiles; i += 2) {  // 16 keys of 16 dimensions
          uint32_t k[4];
          LoadMatrices(
              k, keys + KvRows::At(8 * i + lane_ % 8 + lane_ / 16 * 8, 2 * step + lane_ / 8 % 2));
#pragma unroll
          for (int rows = 0; rows < kRowTiles; ++rows) {
            Mma<T>(s[rows][i], q[rows], k[0], k[1]);
            Mma<T>(s[rows][i + 1], q[rows], k[2], k[3]);
          }
        }
      }
    }
  }

  // Of a row that does not exceed its own by the slack the maximum stays, and its factor is 1.
  __device__ __forceinline__ void RaiseMaxima(const float (&s)[kRowTiles][kKeyTiles][4]) {
    float highest[kRowTiles][2];
    bool is_higher = false;
#pragma unroll
    for (int rows = 0; rows < kRowTiles; ++rows)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float h = -INFINITY;
#pragma unroll
        for (int i = 0; i < kKeyTiles; ++i)
          h = fmaxf(h, fmaxf(s[rows][i][2 * half], s[rows][i][2 * half + 1]));
        is_higher |= h > max_[rows][half] + kSlack;
        highest[rows][half] = h;
      }
    if (!__any_sync(kAllLanes, is_higher)) return;
#pragma unroll
    for (int rows = 0; rows < kRowTiles; ++rows)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float h = highest[rows][half];
        h = fmaxf(h, __shfl_xor_sync(kAllLanes, h, 1));
        h = fmaxf(h, __shfl_xor_sync(kAllLanes, h, 2));
        h = h > max_[rows][half] + kSlack ? h : max_[rows][half];
        const float factor = Exp2(max_[rows][half] - h);
        max_[rows][half] = h;
        sum_[rows][half] *= factor;
#pragma unroll
        for (int i = 0; i < 2 * kSteps; ++i) {
          o_[rows][i][2 * half] *= factor;
          o_[rows][i][2 * half + 1] *= factor;
        }
      }
  }

  __device__ __forceinline__ void AddValues(uint32_t values,
                                            const uint32_t (&p)[kRowTiles][kKeyTiles / 2][4]) {
#pragma unroll
    for (int i = 0; i < kKeyTiles / 2; ++i) {  // 16 keys
      if constexpr (kIsFp8) {
#pragma unroll
        for (int step = 0; step < kSteps; step += 2) {
          uint32_t r[4];  // of 32 dimensions; behind the last 16 the 16 before them once more
          const int first = step + 1 < kSteps ? step : step - 1;
          LoadTransposed(r, values + KvRows::At(16 * i + lane_ % 16, first + lane_ / 16));
#pragma unroll
          for (int n = step - first; n < 2; ++n) {
            const uint32_t low = __byte_perm(r[2 * n], 0, 0x3120);
            const uint32_t high = __byte_perm(r[2 * n + 1], 0, 0x3120);
            const uint32_t even[2] = {HalvesOfFp8(low), HalvesOfFp8(high)};
            const uint32_t odd[2] = {HalvesOfFp8(low >> 16), HalvesOfFp8(high >> 16)};
#pragma unroll
            for (int rows = 0; rows < kRowTiles; ++rows) {
              Mma<T>(o_[rows][2 * (first + n)], p[rows][i], even[0], even[1]);
              Mma<T>(o_[rows][2 * (first + n) + 1], p[rows][i], odd[0], odd[1]);
            }
          }
        }
      } else {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          uint32_t v[4];
          LoadTransposed(v, values + KvRows::At(16 * i + lane_ % 16, 2 * step + lane_ / 16));
#pragma unroll
          for (int rows = 0; rows < kRowTiles; ++rows) {
            Mma<T>(o_[rows][2 * step], p[rows][i], v[0], v[1]);
            Mma<T>(o_[rows][2 * step + 1], p[rows][i], v[2], v[3]);
          }
        }
      }
    }
  }

  // --- the end ---

  __device__ __forceinline__ uint32_t PackOutput(float low, float high) const {
    if constexpr (kIsFp8)
      return a_.q_is_bf16 ? Pack<__nv_bfloat16>(low, high) : Pack<__half>(low, high);
    else
      return Pack<T>(low, high);
  }

  // Through shared memory, where this warp's queries were, to rows of 16-byte stores.
  __device__ __forceinline__ void StoreOutput() {
    __syncwarp();
    const int j = lane_ % 4;
#pragma unroll
    for (int rows = 0; rows < kRowTiles; ++rows)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = sum_[rows][half];
        sum += __shfl_xor_sync(kAllLanes, sum, 1);
        sum += __shfl_xor_sync(kAllLanes, sum, 2);
        const int row = WarpRow() + 16 * rows + 8 * half + lane_ / 4;
        if constexpr (kVaries) {
          if (a_.sink_logits != nullptr)
            sum += SinkWeight(a_.sink_logits[first_head_ + (first_row_ + row) % num_heads_],
                              max_[rows][half]);
        }
        const float factor = sum == 0 ? 0 : a_.v_scale / sum;
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          const float* c = &o_[rows][2 * step][2 * half];
          const float* d = &o_[rows][2 * step + 1][2 * half];
          if constexpr (kIsFp8) {
            // c: dimensions 4j, 4j + 2;  d: 4j + 1, 4j + 3
            *reinterpret_cast<uint2*>(shared_ + QRows::At(row, 2 * step + j / 2) + j % 2 * 8) = {
                PackOutput(c[0] * factor, d[0] * factor), PackOutput(c[1] * factor, d[1] * factor)};
          } else {
            *reinterpret_cast<uint32_t*>(shared_ + QRows::At(row, 2 * step) + j * 4) =
                PackOutput(c[0] * factor, c[1] * factor);
            *reinterpret_cast<uint32_t*>(shared_ + QRows::At(row, 2 * step + 1) + j * 4) =
                PackOutput(d[0] * factor, d[1] * factor);
          }
        }
      }
    __syncwarp();
    constexpr int kChunks = kHeadDim / 8;
    for (int i = lane_; i < 16 * kRowTiles * kChunks; i += 32) {
      const int row = WarpRow() + i / kChunks;
      const int packed = first_row_ + row;
      if (packed >= num_rows_) break;
      if (i % kChunks * 8 >= a_.head_dim) continue;
      const int64_t token = first_token_ + packed / num_heads_;
      const int64_t at = (token * a_.num_heads + first_head_ + packed % num_heads_) * a_.head_dim +
                         i % kChunks * 8;
      *reinterpret_cast<uint4*>(static_cast<__half*>(a_.y) + at) =
          *reinterpret_cast<const uint4*>(shared_ + QRows::At(row, i % kChunks));
    }
  }

  const AttentionArgs& a_;
  const int thread_, warp_, lane_;
  char* const shared_;
  const uint32_t queries_, stages_;
  int first_row_, num_rows_;  // packed rows: of the tile, and of its sequence for these heads
  int first_token_, first_head_, num_heads_, kv_head_;
  int num_keys_;  // that the last row reads
  // Keys [num_sinks, hidden_end_) are hidden to all rows, and [skip_begin_, skip_end_) whole tiles
  // of them.
  int hidden_end_, skip_begin_, skip_end_;
  const int32_t* table_;
  const uint8_t* shifts_ = nullptr;  // of the tile's one token, where it may be of a tree
  int blocks_[kBlocks];
  int last_key_[kRowTiles][2];

  float o_[kRowTiles][2 * kSteps][4];
  float max_[kRowTiles][2], sum_[kRowTiles][2];  // the sum is of this lane's keys
};

template <typename T, bool kIsFp8, int kHeadDim, int kRowTiles, bool kVaries>
__global__ void __launch_bounds__(kThreads, 2)
    RunKernel(const __grid_constant__ AttentionArgs args) {
  BeginOverlapped();
  extern __shared__ __align__(128) char shared[];
  Kernel<T, kIsFp8, kHeadDim, kRowTiles, kVaries>(args, shared).Run();
}

template <typename T, bool kIsFp8, int kHeadDim, int kRowTiles, bool kVaries>
Status LaunchRowTiles(const AttentionArgs& args, int num_tiles, CudaStream& stream) {
  using Attention = Kernel<T, kIsFp8, kHeadDim, kRowTiles, kVaries>;
  constexpr auto kKernel = RunKernel<T, kIsFp8, kHeadDim, kRowTiles, kVaries>;
  static SharedMemoryLimit limit;
  RETURN_IF_ERROR(limit.Raise(kKernel, Attention::kSharedBytes, stream));
  LaunchOverlapped(kKernel, num_tiles * Attention::kParts, kThreads, Attention::kSharedBytes,
                   stream.handle(), args);
  return inflight::cuda::LaunchStatus("prefill attention");
}

// Few tiles leave multiprocessors idle: each is cut in two, whose warps have half the work. Not of
// a fixed stream: the compiler may join a product and a sum in one kernel and not in the other. Of
// what varies there is one kernel, for whatever number of tiles.
template <typename T, bool kIsFp8, int kHeadDim>
Status Launch(const AttentionArgs& args, int max_tiles, CudaStream& stream) {
  const int num_tiles = NumPrefillItems(args, max_tiles);
  if (args.varies()) return LaunchRowTiles<T, kIsFp8, kHeadDim, 1, true>(args, num_tiles, stream);
  if (!stream.is_fixed() && num_tiles <= stream.num_sms())
    return LaunchRowTiles<T, kIsFp8, kHeadDim, 1, false>(args, num_tiles, stream);
  return LaunchRowTiles<T, kIsFp8, kHeadDim, MostRowTiles(kHeadDim), false>(args, num_tiles,
                                                                            stream);
}

}  // namespace prefill

template <int kHeadDim>
Status LaunchPrefill(const AttentionArgs& args, DType kv, int max_tiles, CudaStream& stream) {
  if (kHeadDim == 128 && args.head_dim == 128 && PreferHopperPrefill(args, max_tiles, stream))
    return LaunchHopperPrefill(args, kv, max_tiles, stream);
  if (kv == DType::kF8E4M3) return prefill::Launch<__half, true, kHeadDim>(args, max_tiles, stream);
  if (kv == DType::kF16) return prefill::Launch<__half, false, kHeadDim>(args, max_tiles, stream);
  return prefill::Launch<__nv_bfloat16, false, kHeadDim>(args, max_tiles, stream);
}

}  // namespace inflight::ops::cuda
