// SPDX-License-Identifier: Apache-2.0
// Prefill attention of many tiles on Hopper, head_dim 128: FlashAttention-3 (arXiv:2407.08608) over
// the paged cache.
//
// A CTA has three warpgroups and a multiprocessor to itself. One brings queries, keys and values
// into shared memory, 128 rows each, ahead of the others and across the ends of tiles. Two
// multiply, by wgmma, 64 query rows each: while the tensor cores work on the values of one step
// they compute the softmax of the next one's scores. CTAs take the plan's items (a tile of 128
// query rows for one kv head) in turn; the plan has the long ones first.
//
// Shared memory: two places each for queries, keys and values, of 128 rows in two halves of 64
// dimensions: rows of 128 bytes in the 128-byte swizzle, which keys (K along the row) and values (K
// across the rows) are both read in. Rows of an FP8 cache lie in 32 KiB more until they are widened
// to f16, which is exact; queries then are f16, too. Keys behind the last position of the tile are
// zeros.
//
// Maxima move rarely, as in attention_decode.cuh. Sliding windows, soft caps and logits of heads
// are attention_prefill.cuh's.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/attention_mma.cuh"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/overlap.cuh"

namespace inflight::ops::cuda::prefill_hopper {

inline constexpr int kHeadDim = 128;
inline constexpr int kRows = kPrefillTileRows;
inline constexpr int kKeys = 128;  // of a step
inline constexpr int kConsumers = 2;
inline constexpr int kWarpgroup = 128;
inline constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
inline constexpr int kPlaces = 2;
inline constexpr int kHalfBytes = 128 * 128;
inline constexpr int kTileBytes = 2 * kHalfBytes;
inline constexpr int kRawBytes = 2 * kKeys * kHeadDim;  // of a step in e4m3
constexpr int SharedBytes(bool is_fp8) {
  return 3 * kPlaces * kTileBytes + (is_fp8 ? kRawBytes : 0) + 1024;  // 1024: to align them
}
static_assert(kRows == 64 * kConsumers && kRows == 128 && kKeys == 128);

// Where chunk `chunk`, of 16 chunks of 16 bytes, of a row lies in a place.
__device__ inline uint32_t ChunkAt(int row, int chunk) {
  return static_cast<uint32_t>(chunk / 8 * kHalfBytes + row * 128 + ((chunk ^ row) & 7) * 16);
}

// Places that are filled in turn, as shared addresses. `turn` counts what was filled.
struct Pipe {
  uint32_t tiles;     // kPlaces of kTileBytes
  uint32_t barriers;  // full, then empty, of each place

  __device__ uint32_t Place(int turn) const {
    return tiles + static_cast<uint32_t>(turn % kPlaces * kTileBytes);
  }
  __device__ uint32_t Full(int turn) const { return barriers + turn % kPlaces * 8; }
  __device__ uint32_t Empty(int turn) const { return Full(turn) + kPlaces * 8; }
  __device__ void AwaitFull(int turn) const { Await(Full(turn), turn / kPlaces & 1); }
  __device__ void AwaitEmpty(int turn) const { Await(Empty(turn), (turn / kPlaces & 1) ^ 1); }
};

// A tile of query rows for one kv head.
struct Item {
  int first_row, num_rows;  // packed rows: of the tile, and of its sequence for these heads
  int first_token, first_position, first_head, num_heads, kv_head;
  int num_keys;  // that the last row reads
  const int32_t* table;

  // False where the plan has none.
  __device__ bool Find(const AttentionArgs& a, int index) {
    const int num_heads_of_items = a.num_kv_heads * a.heads.tiles_per_kv_head;
    const PrefillTile& tile = a.plan.tiles[index / num_heads_of_items];
    if (tile.num_tokens == 0) return false;
    const int head_tile = index % num_heads_of_items;
    kv_head = head_tile / a.heads.tiles_per_kv_head;
    const int first_of_group = head_tile % a.heads.tiles_per_kv_head * a.heads.heads_per_tile;
    first_head = kv_head * a.group + first_of_group;
    num_heads = min(a.heads.heads_per_tile, a.group - first_of_group);
    first_row = tile.first_row;
    first_token = tile.first_token;
    first_position = tile.first_position;
    num_rows = tile.num_tokens * num_heads;
    const int last_row = min(first_row + kRows, num_rows) - 1;
    num_keys = last_row < first_row ? 0 : first_position + last_row / num_heads + 1;
    table = a.tables + tile.line * a.table_stride;
    return true;
  }
  // Of packed row `row`, or of the last one.
  __device__ int LastKey(int row) const {
    return first_position + min(row, num_rows - 1) / num_heads;
  }
};

// This CTA's items in their order, and the steps of each.
struct Walk {
  const AttentionArgs& a;
  const int num_items;
  int index;
  Item item;
  int key = 0;
  bool is_valid;

  __device__ Walk(const AttentionArgs& args, int num)
      : a(args), num_items(num), index(static_cast<int>(blockIdx.x) - static_cast<int>(gridDim.x)) {
    NextItem();
  }
  __device__ void NextItem() {
    do {
      index += static_cast<int>(gridDim.x);
      is_valid = index < num_items && item.Find(a, index);
    } while (is_valid && item.num_keys == 0);
    key = 0;
  }
  __device__ void Next() {
    key += kKeys;
    if (key >= item.num_keys) NextItem();
  }
};

// --- the warpgroup that copies ---

template <bool kIsFp8>
class Producer {
 public:
  __device__ Producer(const AttentionArgs& args, Pipe queries, Pipe keys, Pipe values)
      : a_(args),
        thread_(static_cast<int>(threadIdx.x)),
        queries_(queries),
        keys_(keys),
        values_(values),
        raw_(values.tiles + kPlaces * kTileBytes) {}

  __device__ void Run(int num_items) {
    if constexpr (kIsFp8)
      RunFp8(num_items);
    else
      RunHalves(num_items);
    WaitForCopies<0>();
  }

 private:
  static constexpr int kPasses = kRows * 16 / kWarpgroup;  // chunks of 16 bytes of a tile
  static constexpr int kEightRows = 8 * 128;  // bytes from a chunk to the one 8 rows below
  static constexpr int kRowBytes = kHeadDim * (kIsFp8 ? 1 : 2);
  static constexpr int kKeysOfStep = 0;
  static constexpr int kValuesOfStep = 1;

  // 16-bit rows go as they are.
  __device__ __forceinline__ void RunHalves(int num_items) {
    const int64_t values = a_.num_kv_heads * a_.head_bytes;  // from a block's keys
    int item_turn = 0;
    int turn = 0;
    for (Walk walk(a_, num_items); walk.is_valid; walk.NextItem()) {
      const Item& item = walk.item;
      CopyQueries(item, item_turn);
      CommitCopies();
      int line = BlockOf(item, 0);
      for (int key = 0; key < item.num_keys; key += kKeys, ++turn) {
        const int next_line = BlockOf(item, key + kKeys);
        Copy(item, key, line, 0, keys_, turn);
        if (key == 0) {
          // The queries' copies are waited for here, not by the barrier: plain writes follow in
          // their place (StoreOutput).
          CommitCopies();
          WaitForCopies<1>();
          Arrive(queries_.Full(item_turn++));
        }
        Copy(item, key, line, values, values_, turn);
        line = next_line;
      }
    }
  }

  // Those in e4m3 are widened by the warp that copied them, a step after it began to.
  __device__ __forceinline__ void RunFp8(int num_items) {
    Walk ahead(a_, num_items);
    if (!ahead.is_valid) return;
    int item_turn = 0;
    int line = BlockOf(ahead.item, ahead.key);
    CopyQueries(ahead.item, item_turn);
    Fetch(ahead, line, kKeysOfStep);
    Fetch(ahead, line, kValuesOfStep);
    for (int turn = 0; ahead.is_valid; ++turn) {
      const bool is_first = ahead.key == 0;
      ahead.Next();
      if (ahead.is_valid) line = BlockOf(ahead.item, ahead.key);
      WaitForCopies<1>();
      if (is_first) ConvertQueries(item_turn++);
      Widen(keys_, turn, kKeysOfStep);
      if (ahead.is_valid && ahead.key == 0) CopyQueries(ahead.item, item_turn);
      Fetch(ahead, line, kKeysOfStep);
      WaitForCopies<1>();
      Widen(values_, turn, kValuesOfStep);
      Fetch(ahead, line, kValuesOfStep);
    }
  }

  // Lane l < 8 has the block of the 16 keys from key + 16 l on.
  __device__ int BlockOf(const Item& item, int key) const {
    const int group = key + 16 * (thread_ % 32);
    return thread_ % 32 < 8 && group < item.num_keys ? item.table[group >> a_.block_size_log2] : 0;
  }
  // Where, in the cache, those keys lie.
  __device__ int64_t OffsetOf(const Item& item, int key, int block) const {
    const int first = (key + 16 * (thread_ % 32)) & ((1 << a_.block_size_log2) - 1);
    return block * a_.block_bytes + item.kv_head * a_.head_bytes + first * kRowBytes;
  }

  // Chunk i of this thread is of row thread_ / 16 + 8 i.
  __device__ void Copy(const Item& item, int key, int line, int64_t values, const Pipe& to,
                       int turn) const {
    const int64_t offset = OffsetOf(item, key, line);
    const int row = thread_ / 16;
    const int chunk = thread_ % 16;
    const std::byte* const from = a_.cache + values + row * kRowBytes + chunk * 16;
    const uint32_t place = to.Place(turn) + ChunkAt(row, chunk);
    to.AwaitEmpty(turn);
#pragma unroll
    for (int group = 0; group < kKeys / 16; ++group) {
      const std::byte* const keys = from + __shfl_sync(kAllLanes, offset, group);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        CopyAsync16(place + (2 * group + i) * kEightRows, keys + 8 * i * kRowBytes,
                    key + row + 16 * group + 8 * i < item.num_keys);
    }
    ArriveWhenCopied(to.Full(turn));
  }

  // Copies a step's keys or values to where this warp alone reads them: rows 2 w and 2 w + 1 of
  // each 8, w the warp.
  __device__ void Fetch(const Walk& step, int line, int which) const {
    __syncwarp();  // what was there has been read
    if (step.is_valid) {
      const int64_t offset = OffsetOf(step.item, step.key, line);
      const int row = thread_ / 32 * 2 + thread_ / 8 % 2 + thread_ / 16 % 2 * 8;
      const int at = row * kRowBytes + thread_ % 8 * 16;
      const std::byte* const from = a_.cache + which * a_.num_kv_heads * a_.head_bytes + at;
      const uint32_t to = raw_ + static_cast<uint32_t>(which * kKeys * kRowBytes + at);
#pragma unroll
      for (int group = 0; group < kKeys / 16; ++group)
        CopyAsync16(to + group * 16 * kRowBytes, from + __shfl_sync(kAllLanes, offset, group),
                    step.key + row + 16 * group < step.item.num_keys);
    }
    CommitCopies();
  }
  // Chunk i of this thread is of row thread_ / 16 + 8 i.
  __device__ void Widen(const Pipe& to, int turn, int which) const {
    __syncwarp();  // what this warp waited for has come
    const int row = thread_ / 16;
    const int chunk = thread_ % 16;
    const uint32_t from =
        raw_ + static_cast<uint32_t>((which * kKeys + row) * kRowBytes + chunk * 8);
    const uint32_t place = to.Place(turn) + ChunkAt(row, chunk);
    to.AwaitEmpty(turn);
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const uint2 raw = LoadShared8(from + i * 8 * kRowBytes);
      StoreShared(place + i * kEightRows, uint4{HalvesOfFp8(raw.x), HalvesOfFp8(raw.x >> 16),
                                                HalvesOfFp8(raw.y), HalvesOfFp8(raw.y >> 16)});
    }
    FenceAsync();
    Arrive(to.Full(turn));
  }

  __device__ void CopyQueries(const Item& item, int turn) const {
    const int chunk = thread_ % 16;
    const uint32_t place = queries_.Place(turn);
    queries_.AwaitEmpty(turn);
#pragma unroll 4
    for (int i = 0; i < kPasses; ++i) {
      const int row = thread_ / 16 + 8 * i;
      const int packed = item.first_row + row;
      const bool is_used = packed < item.num_rows;
      const auto* from = static_cast<const __half*>(a_.q);
      if (is_used)
        from += (item.first_token + packed / item.num_heads) * a_.q_stride +
                (item.first_head + packed % item.num_heads) * kHeadDim + chunk * 8;
      CopyAsync16(place + ChunkAt(row, chunk), from, is_used);
    }
  }
  // What this thread copied, in place.
  __device__ void ConvertQueries(int turn) const {
    if (a_.q_is_bf16) {
#pragma unroll 4
      for (int i = 0; i < kPasses; ++i) {
        const uint32_t at = queries_.Place(turn) + ChunkAt(thread_ / 16 + 8 * i, thread_ % 16);
        const uint4 q = LoadShared16(at);
        StoreShared(
            at, uint4{HalvesOfBf16(q.x), HalvesOfBf16(q.y), HalvesOfBf16(q.z), HalvesOfBf16(q.w)});
      }
    }
    FenceAsync();
    Arrive(queries_.Full(turn));
  }

  const AttentionArgs& a_;
  const int thread_;
  const Pipe queries_, keys_, values_;
  const uint32_t raw_;  // of a step in e4m3, on its way
};

// --- those that multiply ---

template <typename T, bool kIsFp8>
class Consumer {
 public:
  __device__ Consumer(const AttentionArgs& args, Pipe queries, Pipe keys, Pipe values)
      : a_(args),
        group_(__shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarpgroup, 0) - 1),
        warp_(static_cast<int>(threadIdx.x) % kWarpgroup / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        queries_(queries),
        keys_(keys),
        values_(values) {}

  __device__ void Run(int num_items) {
    int item_turn = 0;
    int turn = 0;
    for (Walk walk(a_, num_items); walk.is_valid; walk.NextItem()) {
      Attend(walk.item, item_turn, turn);
      StoreOutput(walk.item, item_turn++);
    }
  }

 private:
  static constexpr int kSteps = kHeadDim / 16;

  // c[4 i + 2 half + e] is of row RowOf(half) and column 8 i + lane % 4 * 2 + e.
  __device__ int RowOf(int half) const { return group_ * 64 + warp_ * 16 + lane_ / 4 + 8 * half; }

  __device__ void Release(uint32_t empty) const {
    if (lane_ == 0) Arrive(empty);
  }

  __device__ __forceinline__ void Attend(const Item& item, int item_turn, int& turn) {
    const uint32_t queries = queries_.Place(item_turn) + group_ * 64 * 128;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      max_[half] = kLowest;
      sum_[half] = 0;
      last_key_[half] = item.LastKey(item.first_row + RowOf(half));
    }
    first_last_key_ = item.LastKey(item.first_row + group_ * 64);
#pragma unroll
    for (int i = 0; i < 64; ++i) o_[i] = 0;

    float s[64];
    uint32_t p[32];
    queries_.AwaitFull(item_turn);
    keys_.AwaitFull(turn);
    FenceAsync();
    Scores(queries, keys_.Place(turn), s);
    AwaitWgmma<0>();
    Pin(s);
    Release(keys_.Empty(turn));
    float factors[2];
    Softmax(0, s, factors);
    Weights(s, p);
    for (int key = kKeys; key < item.num_keys; key += kKeys) {
      keys_.AwaitFull(turn + 1);
      FenceAsync();
      Scores(queries, keys_.Place(turn + 1), s);
      values_.AwaitFull(turn);
      FenceAsync();
      AddValues(values_.Place(turn), p);
      AwaitWgmma<1>();
      Pin(s);
      Release(keys_.Empty(turn + 1));
      const bool moved = Softmax(key, s, factors);
      AwaitWgmma<0>();
      Pin(o_);
      Release(values_.Empty(turn));
      if (moved) Rescale(factors);
      Weights(s, p);
      ++turn;
    }
    values_.AwaitFull(turn);
    FenceAsync();
    AddValues(values_.Place(turn), p);
    AwaitWgmma<0>();
    Pin(o_);
    Release(values_.Empty(turn));
    ++turn;
  }

  // Starts s = queries keys^T.
  __device__ __forceinline__ void Scores(uint32_t queries, uint32_t keys, float (&s)[64]) const {
    Pin(s);
    FenceWgmma();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t at = step / 4 * kHalfBytes + step % 4 * 32;
      Wgmma128<T>(s, OperandAt(queries + at), OperandAt(keys + at), step > 0);
    }
    CommitWgmma();
  }

  // Starts o += p values.
  __device__ __forceinline__ void AddValues(uint32_t values, const uint32_t (&p)[32]) {
    Pin(o_);
    FenceWgmma();
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
      Wgmma128<T>(o_, p + 4 * step, TransposedOperandAt(values + step * 2048, kHalfBytes));
    CommitWgmma();
  }

  // Scores of keys from `key` on become weights of their softmax; returns whether maxima moved, and
  // then by which factors sums so far shrink.
  __device__ __forceinline__ bool Softmax(int key, float (&s)[64], float (&factors)[2]) {
    if (key + kKeys - 1 > first_last_key_) {
#pragma unroll
      for (int i = 0; i < 64; ++i)
        if (key + i / 4 * 8 + lane_ % 4 * 2 + i % 2 > last_key_[i / 2 % 2]) s[i] = -INFINITY;
    }
    float highest[2];
    bool is_higher = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float h = -INFINITY;
#pragma unroll
      for (int i = 0; i < 16; ++i)
        h = fmaxf(h, fmaxf(s[4 * i + 2 * half], s[4 * i + 2 * half + 1]));
      highest[half] = h * a_.scale_log2;
      is_higher |= highest[half] > max_[half] + kSlack;
    }
    const bool moves = __any_sync(kAllLanes, is_higher);
    if (moves) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float h = highest[half];
        h = fmaxf(h, __shfl_xor_sync(kAllLanes, h, 1));
        h = fmaxf(h, __shfl_xor_sync(kAllLanes, h, 2));
        h = h > max_[half] + kSlack ? h : max_[half];
        factors[half] = Exp2(max_[half] - h);
        max_[half] = h;
        sum_[half] *= factors[half];
      }
    }
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      s[i] = Exp2(fmaf(s[i], a_.scale_log2, -max_[i / 2 % 2]));
      sum_[i / 2 % 2] += s[i];
    }
    return moves;
  }

  __device__ __forceinline__ void Rescale(const float (&factors)[2]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) o_[i] *= factors[i / 2 % 2];
  }

  __device__ __forceinline__ static void Weights(const float (&s)[64], uint32_t (&p)[32]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) p[i] = Pack<T>(s[2 * i], s[2 * i + 1]);
  }

  __device__ uint32_t PackOutput(float low, float high) const {
    if (kIsFp8 && a_.q_is_bf16) return Pack<__nv_bfloat16>(low, high);
    return Pack<T>(low, high);
  }

  // Through shared memory, where the queries were, to rows of 16-byte stores.
  __device__ __forceinline__ void StoreOutput(const Item& item, int item_turn) const {
    const uint32_t place = queries_.Place(item_turn);
    SyncThreads(1 + group_,
                kWarpgroup);  // none of this warpgroup's products reads queries any more
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = sum_[half];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      const float factor = sum == 0 ? 0 : a_.v_scale / sum;
#pragma unroll
      for (int i = 0; i < 16; ++i)
        StoreShared(place + ChunkAt(RowOf(half), i) + lane_ % 4 * 4,
                    PackOutput(o_[4 * i + 2 * half] * factor, o_[4 * i + 2 * half + 1] * factor));
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = group_ * 64 + warp_ * 16 + lane_ / 16 + 2 * i;
      const int packed = item.first_row + row;
      if (packed >= item.num_rows) break;
      const int64_t token = item.first_token + packed / item.num_heads;
      const int64_t at =
          (token * a_.num_heads + item.first_head + packed % item.num_heads) * kHeadDim +
          lane_ % 16 * 8;
      *reinterpret_cast<uint4*>(static_cast<__half*>(a_.y) + at) =
          LoadShared16(place + ChunkAt(row, lane_ % 16));
    }
    Arrive(queries_.Empty(item_turn));
  }

  const AttentionArgs& a_;
  const int group_, warp_, lane_;
  const Pipe queries_, keys_, values_;
  int last_key_[2];
  int first_last_key_;  // of this warpgroup's first row
  float o_[64];
  float max_[2], sum_[2];  // the sum is of this lane's keys
};

// What a thread of each kind has. A CTA that waits for more than it was started with, 168 for each
// of its threads, waits for ever.
template <bool kIsFp8>
inline constexpr int kProducerRegisters = kIsFp8 ? 72 : 56;
template <bool kIsFp8>
inline constexpr int kConsumerRegisters = kIsFp8 ? 216 : 224;

template <bool kIsFp8>
inline constexpr bool kRegistersSuffice =
    kProducerRegisters<kIsFp8> + kConsumers * kConsumerRegisters<kIsFp8> <= 168 * (1 + kConsumers);
static_assert(kRegistersSuffice<false> && kRegistersSuffice<true>);

template <typename T, bool kIsFp8>
__global__ void __launch_bounds__(kThreads, 1)
    RunKernel(const __grid_constant__ AttentionArgs args, const int num_items) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ char shared[];
  __shared__ uint64_t barriers[3 * 2 * kPlaces];
  LetKernelBehindStart();
  const uint32_t tiles = (SharedAddress(shared) + 1023) / 1024 * 1024;
  const auto pipe = [&](int i) {
    return Pipe{tiles + static_cast<uint32_t>(i * kPlaces * kTileBytes),
                SharedAddress(barriers + i * 2 * kPlaces)};
  };
  const Pipe queries = pipe(0);
  const Pipe keys = pipe(1);
  const Pipe values = pipe(2);
  if (threadIdx.x == 0) {
    constexpr int kNumConsumers = kConsumers * kWarpgroup;
    for (int turn = 0; turn < kPlaces; ++turn) {
      for (const Pipe& p : {queries, keys, values}) InitBarrier(p.Full(turn), kWarpgroup);
      for (const Pipe& p : {keys, values}) InitBarrier(p.Empty(turn), kNumConsumers / 32);
      InitBarrier(queries.Empty(turn), kNumConsumers);  // each has read its own (StoreOutput)
    }
    FenceBarriers();
  }
  __syncthreads();
  WaitForKernelBefore();
  if (threadIdx.x < kWarpgroup) {
    LeaveRegisters<kProducerRegisters<kIsFp8>>();
    Producer<kIsFp8>(args, queries, keys, values).Run(num_items);
  } else {
    TakeRegisters<kConsumerRegisters<kIsFp8>>();
    Consumer<T, kIsFp8>(args, queries, keys, values).Run(num_items);
  }
#endif
}

}  // namespace inflight::ops::cuda::prefill_hopper
