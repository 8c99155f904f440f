// SPDX-License-Identifier: Apache-2.0
// Prefill attention over the paged cache on Hopper, 16-bit caches: wgmma and TMA in the manner of
// FlashAttention-3 (arXiv:2407.08608).
//
// One CTA per SM takes tiles of 128 query rows of one kv head in turn, the plan's list forwards and
// backwards: it is sorted, so that all CTAs end together. Its three warpgroups:
//   producer     warp 0 copies blocks of K and V by TMA, a box of a block's rows and 64 columns
//   each;
//                warps 1-3 gather the rows of Q of the next tile
//   2 consumers  64 rows each. The scores of a tile of keys and the sums over the values of the
//   tile
//                before are one batch of wgmma; softmax runs while the sums, and the products of
//                the other consumer, keep the tensor cores busy. They take turns in issuing.
//
//   j        0      1              2                     n-1                 n
//   issue    S_0    S_1, O += P_0 V_0   S_2, O += P_1 V_1  ...  S_n-1, O += P_n-2 V_n-2   O +=
//   P_n-1 V_n-1
//
// Values behind the end of a sequence may be anything, and 0 times NaN is NaN: consumers zero them
// in the last tile. Maxima move rarely: as in attention_decode.cuh.
//
// Shared memory at head_dim 128: Q 32 KiB, two stages each of K and V 128 KiB, y 32 KiB. Key tiles
// of 128 (64 at head_dim 256, where y takes Q's place).
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/attention_mma.cuh"
#include "ops/cuda/attention_sm90.cuh"
#include "ops/cuda/overlap.cuh"

namespace inflight::ops::cuda {
namespace prefill_sm90 {

inline constexpr int kRows = 128;
inline constexpr int kConsumers = 2;
inline constexpr int kThreads = 128 * (1 + kConsumers);
inline constexpr int kConsumerWarps = 4 * kConsumers;
inline constexpr int kQueryThreads = 96;  // that gather Q
inline constexpr int kStages = 2;
inline constexpr float kSlack = 8;
inline constexpr unsigned kAllLanes = 0xffffffffU;

// Byte offsets in shared memory. Matrices lie in parts of 64 columns, rows of 128 bytes.
template <int kHeadDim>
struct Layout {
  static constexpr int kParts = kHeadDim / 64;
  static constexpr int kKeys = kHeadDim > 128 ? 64 : 128;
  static constexpr int kQPartBytes = kRows * 128;
  static constexpr int kKvPartBytes = kKeys * 128;
  static constexpr int kKvBytes = kParts * kKvPartBytes;  // of K or V of a stage
  static constexpr bool kHasOutput = kHeadDim <= 128;     // a place for y beside Q's

  static constexpr int kQ = 0;
  static constexpr int kK = kQ + kParts * kQPartBytes;
  static constexpr int kV = kK + kStages * kKvBytes;
  static constexpr int kY = kHasOutput ? kV + kStages * kKvBytes : kQ;
  static constexpr int kBarriers =
      kV + kStages * kKvBytes + (kHasOutput ? kRows * kHeadDim * 2 : 0);
  static constexpr int kFullK = kBarriers, kEmptyK = kFullK + 8 * kStages;
  static constexpr int kFullV = kEmptyK + 8 * kStages, kEmptyV = kFullV + 8 * kStages;
  static constexpr int kFullQ = kEmptyV + 8 * kStages, kEmptyQ = kFullQ + 8;
  static constexpr int kBytes = kEmptyQ + 8;
  static constexpr int kAlignment = 1024;
};

struct Args : AttentionArgs {
  int num_item_heads;  // tiles of heads of all kv heads
  int max_items;       // tiles of the plan times num_item_heads
  int box_rows;        // of a box of the map
};

// A tile of query rows for some heads of one kv head.
struct Item {
  int first_row, num_rows;  // packed rows: of the tile, and of its sequence for these heads
  int first_token, first_position;
  int first_head, num_heads, kv_head;
  int num_keys;  // that the last row reads
  int seq_len, line;
};

// The CTA's items, one after the other; the same in all its threads.
class Items {
 public:
  __device__ __forceinline__ explicit Items(const Args& args)
      : a_(args), cta_(static_cast<int>(blockIdx.x)), num_ctas_(static_cast<int>(gridDim.x)) {}

  // False behind the last one.
  __device__ __forceinline__ bool Next(Item& item) {
    while (true) {
      const int index = round_ * num_ctas_ + (round_ % 2 == 0 ? cta_ : num_ctas_ - 1 - cta_);
      ++round_;
      if (index >= a_.max_items) return false;
      const int4* from = reinterpret_cast<const int4*>(a_.plan.tiles + index / a_.num_item_heads);
      const int4 tile = from[0];  // line, first_token, num_tokens, first_position
      if (tile.z == 0) return false;
      const int head = index % a_.num_item_heads;
      const int first_of_group = head % a_.heads.tiles_per_kv_head * a_.heads.heads_per_tile;
      item.first_row = from[1].x;
      item.line = tile.x;
      item.first_token = tile.y;
      item.first_position = tile.w;
      item.kv_head = head / a_.heads.tiles_per_kv_head;
      item.first_head = item.kv_head * a_.group + first_of_group;
      item.num_heads = min(a_.heads.heads_per_tile, a_.group - first_of_group);
      item.num_rows = tile.z * item.num_heads;
      item.seq_len = tile.w + tile.z;
      const int last_row = min(item.first_row + kRows, item.num_rows) - 1;
      item.num_keys = tile.w + last_row / item.num_heads + 1;
      if (item.first_row < item.num_rows) return true;
    }
  }

 private:
  const Args& a_;
  const int cta_, num_ctas_;
  int round_ = 0;
};

// --- producer ---

template <int kHeadDim>
__device__ __forceinline__ void CopyKeysAndValues(const Args& a, const CUtensorMap* map,
                                                  uint32_t shared) {
  using L = Layout<kHeadDim>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Each lane copies one box of K and one of V.
  const int box = lane / L::kParts;
  const int part = lane % L::kParts;
  const int box_key = box * a.box_rows;
  const bool is_used = box_key < L::kKeys;
  const uint32_t at = static_cast<uint32_t>(part * L::kKvPartBytes + box_key * 128);
  const int block_size = 1 << a.block_size_log2;
  uint32_t stage = 0;
  uint32_t parity = 1;  // of the empty barriers: a phase before the first has ended
  Items items(a);
  Item item;
  while (items.Next(item)) {
    const int32_t* table = a.tables + item.line * a.table_stride;
    const auto block_of = [&](int key) {
      return is_used && key < item.seq_len ? table[key >> a.block_size_log2] : 0;
    };
    int block = block_of(box_key);
    for (int first = 0; first < item.num_keys; first += L::kKeys) {
      const int key = first + box_key;
      // Boxes that hold a key of the sequence.
      const int num_boxes = (min(item.seq_len - first, L::kKeys) + a.box_rows - 1) / a.box_rows;
      const int bytes = num_boxes * L::kParts * a.box_rows * 128;
      const bool copies = is_used && key < item.seq_len;
      // Row of the map: of this block's keys of the kv head.
      const int row =
          ((block * 2) * a.num_kv_heads + item.kv_head) * block_size + (key & (block_size - 1));
      const uint32_t full_k = shared + L::kFullK + 8 * stage;
      const uint32_t full_v = shared + L::kFullV + 8 * stage;
      Await(shared + L::kEmptyK + 8 * stage, parity);
      if (lane == 0) ArriveExpecting(full_k, bytes);
      __syncwarp();
      if (copies) CopyBox(shared + L::kK + stage * L::kKvBytes + at, map, part * 64, row, full_k);
      const int next_block = block_of(key + L::kKeys);
      Await(shared + L::kEmptyV + 8 * stage, parity);
      if (lane == 0) ArriveExpecting(full_v, bytes);
      __syncwarp();
      if (copies)
        CopyBox(shared + L::kV + stage * L::kKvBytes + at, map, part * 64,
                row + a.num_kv_heads * block_size, full_v);
      block = next_block;
      stage ^= 1;
      if (stage == 0) parity ^= 1;
    }
  }
}

template <int kHeadDim>
__device__ __forceinline__ void CopyQueries(const Args& a, uint32_t shared) {
  using L = Layout<kHeadDim>;
  constexpr int kChunks = kHeadDim / 8;
  const int thread = static_cast<int>(threadIdx.x) - 32;
  uint32_t parity = 1;
  Items items(a);
  Item item;
  while (items.Next(item)) {
    Await(shared + L::kEmptyQ, parity);
    parity ^= 1;
    for (int i = thread; i < kRows * kChunks; i += kQueryThreads) {
      const int row = i / kChunks;
      const int chunk = i % kChunks;
      const int packed = item.first_row + row;
      const bool is_used = packed < item.num_rows;
      const int token = packed / item.num_heads;
      const int64_t from = (item.first_token + token) * a.q_stride +
                           (item.first_head + packed - token * item.num_heads) * kHeadDim +
                           chunk * 8;
      CopyAsync16(shared + L::kQ +
                      static_cast<uint32_t>(chunk / 8 * L::kQPartBytes + row * 128 +
                                            ((chunk % 8) ^ (row & 7)) * 16),
                  static_cast<const __half*>(a.q) + (is_used ? from : 0), is_used);
    }
    CommitCopies();
    WaitForCopies<0>();
    FenceForAsync();
    Arrive(shared + L::kFullQ);
  }
}

// --- consumers ---

template <typename T, int kHeadDim>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const Args& args, char* shared)
      : a_(args),
        shared_pointer_(shared),
        shared_(SharedAddress(shared)),
        warpgroup_(static_cast<int>(threadIdx.x) / 128 - 1),
        thread_(static_cast<int>(threadIdx.x) % 128),
        lane_(thread_ % 32) {}

  __device__ __forceinline__ void Run() {
    if (warpgroup_ == 1) GiveTurn(kTurn);
    Items items(a_);
    Item item;
    uint32_t q_parity = 0;
    while (items.Next(item)) {
      Start(item);
      Await(shared_ + L::kFullQ, q_parity);
      q_parity ^= 1;
      const int num_tiles = (item.num_keys + L::kKeys - 1) / L::kKeys;
      Await(shared_ + L::kFullK + 8 * stage_, parity_);
      AwaitTurn(kTurn + warpgroup_);
      IssueScores(stage_);
      GiveTurn(kTurn + (warpgroup_ ^ 1));
      AwaitWgmma<0>();
      Pin(s_);
      ArriveOfWarp(L::kEmptyK + 8 * stage_);
      MaskAndRaise(0);
      Weights();
      PackWeights();
      for (int tile = 1; tile < num_tiles; ++tile) {
        const uint32_t before = stage_;
        const uint32_t parity_before = parity_;
        NextStage();
        Await(shared_ + L::kFullK + 8 * stage_, parity_);
        AwaitTurn(kTurn + warpgroup_);
        IssueScores(stage_);
        Await(shared_ + L::kFullV + 8 * before, parity_before);
        IssueSums(before);
        GiveTurn(kTurn + (warpgroup_ ^ 1));
        AwaitWgmma<1>();
        Pin(s_);
        ArriveOfWarp(L::kEmptyK + 8 * stage_);
        const bool is_raised = MaskAndRaise(tile * L::kKeys);
        Weights();
        AwaitWgmma<0>();
        Pin(o_);
        ArriveOfWarp(L::kEmptyV + 8 * before);
        if (is_raised) Rescale();
        PackWeights();
      }
      if constexpr (L::kHasOutput) ArriveOfWarp(L::kEmptyQ);
      Await(shared_ + L::kFullV + 8 * stage_, parity_);
      ZeroBehind(item.seq_len - (num_tiles - 1) * L::kKeys);
      AwaitTurn(kTurn + warpgroup_);
      IssueSums(stage_);
      GiveTurn(kTurn + (warpgroup_ ^ 1));
      AwaitWgmma<0>();
      Pin(o_);
      ArriveOfWarp(L::kEmptyV + 8 * stage_);
      NextStage();
      Store(item);
      if constexpr (!L::kHasOutput) ArriveOfWarp(L::kEmptyQ);
    }
    if (warpgroup_ == 0) AwaitTurn(kTurn);  // what warpgroup 1 gave last
  }

 private:
  using L = Layout<kHeadDim>;
  static constexpr int kTurn = 1;              // barriers 1 and 2: the turns of the warpgroups
  static constexpr int kOwn = 3;               // and 3, 4: of one warpgroup
  static constexpr int kTiles = L::kKeys / 8;  // of 8 keys

  __device__ __forceinline__ void NextStage() {
    stage_ ^= 1;
    if (stage_ == 0) parity_ ^= 1;
  }
  __device__ __forceinline__ void ArriveOfWarp(int barrier) const {
    __syncwarp();
    if (lane_ == 0) Arrive(shared_ + static_cast<uint32_t>(barrier));
  }

  __device__ __forceinline__ void Start(const Item& item) {
    first_last_key_ = item.first_position + (item.first_row + 64 * warpgroup_) / item.num_heads;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = min(item.first_row + Row(half), item.num_rows - 1);
      last_key_[half] = item.first_position + row / item.num_heads;
      max_[half] = -INFINITY;
      sum_[half] = 0;
    }
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) o_[i] = 0;
  }
  // Of the tile, for the halves of the thread's numbers.
  __device__ __forceinline__ int Row(int half) const {
    return 64 * warpgroup_ + thread_ / 32 * 16 + 8 * half + lane_ / 4;
  }

  __device__ __forceinline__ void IssueScores(uint32_t stage) {
    Pin(s_);
    FenceWgmma();
    const uint32_t q = shared_ + L::kQ + static_cast<uint32_t>(warpgroup_ * 64 * 128);
    const uint32_t k = shared_ + L::kK + stage * L::kKvBytes;
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step)
      Wgmma<T>(s_, AlongSum(q + step / 4 * L::kQPartBytes + step % 4 * 32),
               AlongSum(k + step / 4 * L::kKvPartBytes + step % 4 * 32), step > 0);
    CommitWgmma();
  }

  __device__ __forceinline__ void IssueSums(uint32_t stage) {
    Pin(o_);
#pragma unroll
    for (int i = 0; i < L::kKeys / 4; ++i) asm volatile("" : "+r"(p_[i])::"memory");
    FenceWgmma();
    const uint32_t v = shared_ + L::kV + stage * L::kKvBytes;
#pragma unroll
    for (int step = 0; step < L::kKeys / 16; ++step)
      WgmmaFromRegisters<T>(o_, p_ + 4 * step, AcrossSum(v + step * 2048, L::kKvPartBytes));
    CommitWgmma();
  }

  // Whether maxima have moved: then the sums have to be multiplied by factor_.
  __device__ __forceinline__ bool MaskAndRaise(int first_key) {
    if (first_key + L::kKeys - 1 > first_last_key_) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (first_key + 8 * i + lane_ % 4 * 2 + e % 2 > last_key_[e / 2])
            s_[4 * i + e] = -INFINITY;
    }
    float highest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float h[2] = {s_[2 * half], s_[2 * half + 1]};
#pragma unroll
      for (int i = 1; i < kTiles; ++i) {
        h[0] = fmaxf(h[0], s_[4 * i + 2 * half]);
        h[1] = fmaxf(h[1], s_[4 * i + 2 * half + 1]);
      }
      highest[half] = fmaxf(h[0], h[1]) * a_.scale_log2;
    }
    const bool is_higher = highest[0] > max_[0] + kSlack || highest[1] > max_[1] + kSlack;
    if (!__any_sync(kAllLanes, is_higher)) return false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float h = highest[half];
      h = fmaxf(h, __shfl_xor_sync(kAllLanes, h, 1));
      h = fmaxf(h, __shfl_xor_sync(kAllLanes, h, 2));
      h = fmaxf(h, max_[half]);
      factor_[half] = Exp2(max_[half] - h);
      max_[half] = h;
      sum_[half] *= factor_[half];
    }
    return true;
  }

  __device__ __forceinline__ void Weights() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sums[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& s = s_[4 * i + 2 * half + e];
          s = Exp2(fmaf(s, a_.scale_log2, -max_[half]));
          sums[e] += s;
        }
      sum_[half] += sums[0] + sums[1];
    }
  }

  __device__ __forceinline__ void PackWeights() {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      p_[2 * i] = Pack<T>(s_[4 * i], s_[4 * i + 1]);
      p_[2 * i + 1] = Pack<T>(s_[4 * i + 2], s_[4 * i + 3]);
    }
  }

  __device__ __forceinline__ void Rescale() {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) o_[i] *= factor_[i / 2 % 2];
  }

  // Values of keys from `first` on of the tile. Both consumers write the same zeros, each before
  // its own products.
  __device__ __forceinline__ void ZeroBehind(int first) {
    if (first >= L::kKeys) return;
    char* values = shared_pointer_ + L::kV + stage_ * L::kKvBytes;
    for (int part = 0; part < L::kParts; ++part)
      for (int i = first * 8 + thread_; i < L::kKeys * 8; i += 128)
        *reinterpret_cast<uint4*>(values + part * L::kKvPartBytes + i * 16) = {0, 0, 0, 0};
    FenceForAsync();
    SyncWarpgroup(kOwn + warpgroup_);
  }

  // Through the warp's part of shared memory to rows of 16-byte stores.
  __device__ __forceinline__ void Store(const Item& item) {
    constexpr int kChunks = kHeadDim / 8;
    const int first_row = 64 * warpgroup_ + thread_ / 32 * 16;  // of the warp
    // Where y takes Q's place, both are in parts of 64 columns: a warp writes over its own rows of
    // Q, which its warpgroup has read.
    char* y = shared_pointer_ + L::kY;
    const auto at = [&](int row, int chunk) {
      return y + chunk / 8 * (kRows * 128) + (first_row + row) * 128 +
             ((chunk % 8) ^ (row & 7)) * 16;
    };
    if constexpr (!L::kHasOutput) SyncWarpgroup(kOwn + warpgroup_);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = sum_[half];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      const float factor = sum == 0 ? 0 : __fdividef(a_.v_scale, sum);
#pragma unroll
      for (int i = 0; i < kChunks; ++i)
        *reinterpret_cast<uint32_t*>(at(8 * half + lane_ / 4, i) + lane_ % 4 * 4) =
            Pack<T>(o_[4 * i + 2 * half] * factor, o_[4 * i + 2 * half + 1] * factor);
    }
    __syncwarp();
    for (int i = lane_; i < 16 * kChunks; i += 32) {
      const int row = i / kChunks;
      const int packed = item.first_row + first_row + row;
      if (packed >= item.num_rows) break;
      const int token = packed / item.num_heads;
      const int64_t to = (static_cast<int64_t>(item.first_token + token) * a_.num_heads +
                          item.first_head + packed - token * item.num_heads) *
                             kHeadDim +
                         i % kChunks * 8;
      *reinterpret_cast<uint4*>(static_cast<__half*>(a_.y) + to) =
          *reinterpret_cast<const uint4*>(at(row, i % kChunks));
    }
    __syncwarp();
  }

  const Args& a_;
  char* const shared_pointer_;
  const uint32_t shared_;
  const int warpgroup_, thread_, lane_;
  uint32_t stage_ = 0, parity_ = 0;  // of the tile of keys at hand
  int first_last_key_;               // the last key of the warpgroup's first row
  int last_key_[2];
  float max_[2], sum_[2], factor_[2];  // the sum is of this thread's keys
  float s_[L::kKeys / 2];
  float o_[kHeadDim / 2];
  uint32_t p_[L::kKeys / 4];
};

template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1)
    RunKernel(const __grid_constant__ Args args, const __grid_constant__ CUtensorMap map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using L = Layout<kHeadDim>;
  extern __shared__ __align__(1024) char unaligned[];
  char* shared =
      unaligned + (L::kAlignment - SharedAddress(unaligned) % L::kAlignment) % L::kAlignment;
  const uint32_t base = SharedAddress(shared);
  if (threadIdx.x == 0) {
    PrefetchMap(&map);
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(base + L::kFullK + 8 * stage, 1);
      InitBarrier(base + L::kFullV + 8 * stage, 1);
      InitBarrier(base + L::kEmptyK + 8 * stage, kConsumerWarps);
      InitBarrier(base + L::kEmptyV + 8 * stage, kConsumerWarps);
    }
    InitBarrier(base + L::kFullQ, kQueryThreads);
    InitBarrier(base + L::kEmptyQ, kConsumerWarps);
    FenceBarrierInit();
  }
  __syncthreads();
  BeginOverlapped();
  if (threadIdx.x < 128) {
    GiveRegisters<40>();
    if (threadIdx.x < 32)
      CopyKeysAndValues<kHeadDim>(args, &map, base);
    else
      CopyQueries<kHeadDim>(args, base);
  } else {
    TakeRegisters<232>();
    Consumer<T, kHeadDim>(args, shared).Run();
  }
#endif
}

template <typename T, int kHeadDim>
Status Launch(const Args& args, const CUtensorMap& map, CudaStream& stream) {
  constexpr int kSharedBytes = Layout<kHeadDim>::kBytes + Layout<kHeadDim>::kAlignment;
  static_assert(kSharedBytes <= 227 * 1024);
  static SharedMemoryLimit limit;
  RETURN_IF_ERROR(limit.Raise(RunKernel<T, kHeadDim>, kSharedBytes, stream));
  const int num_ctas = std::min(stream.num_sms(), args.max_items);
  LaunchOverlapped(RunKernel<T, kHeadDim>, num_ctas, kThreads, kSharedBytes, stream.handle(), args,
                   map);
  return inflight::cuda::LaunchStatus("prefill attention for sm_90a");
}

}  // namespace prefill_sm90
}  // namespace inflight::ops::cuda
