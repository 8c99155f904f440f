// SPDX-License-Identifier: Apache-2.0
// Attention of decode rows inside the kernel of all layers: a CTA takes a row's keys of one head of
// K and V, or a part of them, its warps 16 keys each in turns. Keys and values go from the cache
// into registers, as operands of mma.m16n8k16 whose 16 rows are the query heads:
//
//   S [heads, 16 keys] = Q K^T     a lane reads 8 neighbouring dimensions of a key; Q alike
//   O [heads, dims]   += P V       P is S as it lies; a lane reads head_dim / 8 dimensions of four
//                                  keys, column t of the product's tile i being dimension
//                                  t head_dim / 8 + i
//
// Softmax is online (arXiv:1805.02867) in base 2. Parts of a row are added up by the CTA that ends
// last.
#pragma once

#include "ops/cuda/decode_layers_products.cuh"

namespace inflight::ops::cuda::decode_layers {

// What products of attention are done in: f16 of an FP8 cache.
template <typename T, bool kIsFp8>
struct AttentionTypes {
  using Operand = std::conditional_t<kIsFp8, __half, T>;
  static constexpr int kElementBytes = kIsFp8 ? 1 : 2;

  // Eight elements of the cache.
  static __device__ uint4 Load(const std::byte* p) {
    if constexpr (kIsFp8) {
      const uint2 codes = __ldcg(reinterpret_cast<const uint2*>(p));
      return make_uint4(HalvesOfFp8(codes.x), HalvesOfFp8(codes.x >> 16), HalvesOfFp8(codes.y),
                        HalvesOfFp8(codes.y >> 16));
    } else {
      return LoadPast1(p);
    }
  }
  static __device__ uint32_t Query(uint32_t pair) {
    if constexpr (kIsFp8 && std::is_same_v<T, __nv_bfloat16>) return HalvesOfBf16(pair);
    return pair;
  }
};

// Of a head of K and V, up to 8 query heads; a warp's.
template <typename T, bool kIsFp8, int kHeadDim>
struct WarpAttention {
  using Types = AttentionTypes<T, kIsFp8>;
  using Operand = typename Types::Operand;
  static constexpr int kChunks = kHeadDim / 32;  // of dimensions, two products each
  static constexpr int kTiles = kHeadDim / 16;   // of O
  static constexpr int kLaneDims = kHeadDim / 8;
  static constexpr int kRowBytes = kHeadDim * Types::kElementBytes;

  uint4 q[kChunks];
  // Of tile t the dimensions kLaneDims (lane / 4) + 2 t, for heads lane % 4 * 2 and the next one,
  // and then the dimension behind for both.
  float o[kTiles][4] = {};
  float highest = kLowest, total = 0;  // of head lane / 4; the sum is the lane's own keys'

  // The keys [key, key + 16) of the block whose K lie at `keys`; those from `end` on are none. Of
  // the warp's first ones K and V are asked for at once, of others V behind K, since registers are
  // few.
  template <bool kIsFirst>
  __device__ void Add(const Args& args, const std::byte* keys, int offset, int key, int end,
                      float k_scale) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4, j = lane % 4;
    const std::byte* const own_keys =
        keys + (offset + g) * kRowBytes + 8 * j * Types::kElementBytes;
    const std::byte* const own_values = keys + args.num_kv_heads * args.head_bytes +
                                        (offset + 2 * j) * kRowBytes +
                                        kLaneDims * g * Types::kElementBytes;
    uint4 k[2][kChunks], v[kLaneDims / 8][4];
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
        k[n][c] = key + 8 * n + g < end
                      ? Types::Load(own_keys + 8 * n * kRowBytes + 32 * c * Types::kElementBytes)
                      : make_uint4(0, 0, 0, 0);
    const auto load_values = [&](int c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = i % 2 + i / 2 * 8;
        v[c][i] = key + 2 * j + at < end
                      ? Types::Load(own_values + at * kRowBytes + 8 * c * Types::kElementBytes)
                      : make_uint4(0, 0, 0, 0);
      }
    };
    if constexpr (kIsFirst) {
#pragma unroll
      for (int c = 0; c < kLaneDims / 8; ++c) load_values(c);
    }
    float s[2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        AddProduct<Operand>(s[n], q[c].x, 0, q[c].y, 0, k[n][c].x, k[n][c].y);
        AddProduct<Operand>(s[n], q[c].z, 0, q[c].w, 0, k[n][c].z, k[n][c].w);
      }
    float most = kLowest;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        s[n][e] = key + 8 * n + 2 * j + e < end ? s[n][e] * (args.scale_log2 * k_scale) : -INFINITY;
        most = fmaxf(most, s[n][e]);
      }
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
    if constexpr (!kIsFirst) {
      most = fmaxf(most, highest);
      const float factor = Exp2(highest - most);
      total *= factor;
      const float of_low = __shfl_sync(kAllLanes, factor, 8 * j);
      const float of_high = __shfl_sync(kAllLanes, factor, 8 * j + 4);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        o[t][0] *= of_low, o[t][2] *= of_low;
        o[t][1] *= of_high, o[t][3] *= of_high;
      }
    }
    highest = most;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        s[n][e] = Exp2(s[n][e] - highest);
        total += s[n][e];
      }
    const uint32_t p0 = PackTwo<Operand>(s[0][0], s[0][1]);
    const uint32_t p1 = PackTwo<Operand>(s[1][0], s[1][1]);
#pragma unroll
    for (int c = 0; c < kLaneDims / 8; ++c) {
      if constexpr (!kIsFirst) load_values(c);
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const auto pair = [&](int i, uint32_t select) {  // of two keys
          return __byte_perm(WordOf(v[c][i], t), WordOf(v[c][i + 1], t), select);
        };
        AddProduct<Operand>(o[4 * c + t], pair(0, 0x5410), pair(0, 0x7632), pair(2, 0x5410),
                            pair(2, 0x7632), p0, p1);
      }
    }
  }
};

inline constexpr int kTurnKeys = 16 * kWarps;  // of all warps
inline constexpr int kTurnsAhead = 4;          // that L2 is asked for

// A part of the keys of a row and of a head of K and V; the same in all layers.
struct AttentionItem {
  int row, kv_head, part, parts;
  int begin, end;        // keys
  const int32_t* table;  // the row's blocks
  int64_t first_block;   // of the warp's first keys

  __device__ AttentionItem(const Args& args, int item) {
    const int of_part = args.num_tokens * args.num_kv_heads;
    // Parts of a row lie apart, so that rows of few keys use as many CTAs as there are heads.
    part = item / of_part;
    row = item % of_part / args.num_kv_heads;
    kv_head = item % args.num_kv_heads;
    begin = end = parts = 0;
    if (part >= args.splits) return;
    const int length = args.seq_lens[row];
    const int unit = args.splits * kSplitKeys;
    const int per_part = (length + unit - 1) / unit * kSplitKeys;
    parts = max(1, (length + per_part - 1) / max(per_part, 1));
    if (part >= parts) return;
    begin = part * per_part;
    end = min(length, begin + per_part);
    table =
        args.tables + (args.table_rows == nullptr ? row : args.table_rows[row]) * args.table_stride;
    first_block = FirstKey() < end ? table[FirstKey() / args.block_size] : 0;
  }
  __device__ int FirstKey() const { return begin + 16 * (static_cast<int>(threadIdx.x) / 32); }
  __device__ bool HasPart() const { return end > begin; }

  __device__ const std::byte* Cache(const Args& args, int layer) const {
    return args.cache + layer * args.layer_bytes + kv_head * args.head_bytes;
  }
  // Asks L2 for 16 keys of the warp, and their values.
  template <int kRowBytes>
  __device__ void Prefetch(const Args& args, int layer, int key) const {
    if (key >= end) return;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t block = key == FirstKey() ? first_block : table[key / args.block_size];
    const std::byte* const rows = Cache(args, layer) + block * args.block_bytes +
                                  lane / 16 * args.num_kv_heads * args.head_bytes +
                                  (key % args.block_size + lane % 16) * kRowBytes;
#pragma unroll
    for (int at = 0; at < kRowBytes; at += 128)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(rows + at));
  }
  // What the warp begins with.
  template <int kRowBytes>
  __device__ void PrefetchFirst(const Args& args, int layer) const {
    for (int turn = 0; turn < kTurnsAhead; ++turn)
      Prefetch<kRowBytes>(args, layer, FirstKey() + turn * kTurnKeys);
  }
};

// Attention of an item in a layer. `shared`: [kWarps][heads][head_dim + 2] floats; all threads that
// multiply take part.
template <typename T, bool kIsFp8, int kHeadDim>
__device__ void Attend(const Args& args, int layer, const AttentionItem& item, float* shared,
                       int* is_last) {
  using Attention = WarpAttention<T, kIsFp8, kHeadDim>;
  using Types = typename Attention::Types;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int heads = args.num_heads / args.num_kv_heads;
  const LayerArgs& of_layer = args.layers[layer];

  Attention attention;
  {
    const int head = item.kv_head * heads + min(lane / 4, heads - 1);
    const T* const q = static_cast<const T*>(args.q) + item.row * args.q_stride + head * kHeadDim;
#pragma unroll
    for (int c = 0; c < Attention::kChunks; ++c) {
      const uint4 words = LoadPast1(q + 32 * c + 8 * (lane % 4));
      attention.q[c] = make_uint4(Types::Query(words.x), Types::Query(words.y),
                                  Types::Query(words.z), Types::Query(words.w));
    }
  }
  const std::byte* const cache = item.Cache(args, layer);
  if (item.FirstKey() < item.end)
    attention.template Add<true>(args, cache + item.first_block * args.block_bytes,
                                 item.FirstKey() % args.block_size, item.FirstKey(), item.end,
                                 of_layer.k_scale);
  int next = item.FirstKey() + kTurnKeys;
  int64_t block = next < item.end ? item.table[next / args.block_size] : 0;
  while (next < item.end) {
    const int key = next;
    const std::byte* const keys = cache + block * args.block_bytes;
    item.template Prefetch<Attention::kRowBytes>(args, layer, key + kTurnsAhead * kTurnKeys);
    next += kTurnKeys;
    if (next < item.end) block = item.table[next / args.block_size];
    attention.template Add<false>(args, keys, key % args.block_size, key, item.end,
                                  of_layer.k_scale);
  }

  // Of each warp and head: sums, the maximum, the sum of weights.
  attention.total += __shfl_xor_sync(kAllLanes, attention.total, 1);
  attention.total += __shfl_xor_sync(kAllLanes, attention.total, 2);
  constexpr int kWidth = kHeadDim + 2;
  const auto row_of = [&](int head) { return shared + (warp * heads + head) * kWidth; };
#pragma unroll
  for (int e = 0; e < 2; ++e)
    if (lane % 4 * 2 + e < heads) {
      float* const to = row_of(lane % 4 * 2 + e) + Attention::kLaneDims * (lane / 4);
#pragma unroll
      for (int t = 0; t < Attention::kTiles; ++t) {
        to[2 * t] = attention.o[t][e];
        to[2 * t + 1] = attention.o[t][2 + e];
      }
    }
  if (lane / 4 < heads && lane % 4 == 0) {
    row_of(lane / 4)[kHeadDim] = attention.highest;
    row_of(lane / 4)[kHeadDim + 1] = attention.total;
  }
  SyncWarps();

  const float v_scale = of_layer.v_scale;
  T* const y = static_cast<T*>(args.attention) +
               (int64_t{item.row} * args.num_heads + item.kv_head * heads) * kHeadDim;
  float* const partials =
      args.partials +
      (int64_t{item.row} * args.num_heads + item.kv_head * heads) * args.splits * kWidth;
  // Adds up `count` sums of element i, which load(c, element) reads.
  const auto add_up = [&](int i, int count, const auto& load, float& sum, float& weight) {
    float highest = kLowest;
#pragma unroll 4
    for (int c = 0; c < count; ++c) highest = fmaxf(highest, load(c, kHeadDim));
    sum = weight = 0;
#pragma unroll 4
    for (int c = 0; c < count; ++c) {
      const float factor = Exp2(load(c, kHeadDim) - highest);
      sum = fmaf(load(c, i), factor, sum);
      weight = fmaf(load(c, kHeadDim + 1), factor, weight);
    }
    return highest;
  };
  // Warps behind the last key have nothing.
  const int warps = min(kWarps, (item.end - item.begin + 15) / 16);
  for (int i = static_cast<int>(threadIdx.x); i < heads * kHeadDim; i += kThreads) {
    const int head = i / kHeadDim, dim = i % kHeadDim;
    float sum, weight;
    const float highest = add_up(
        dim, warps,
        [&](int c, int element) { return shared[(c * heads + head) * kWidth + element]; }, sum,
        weight);
    if (item.parts == 1) {
      y[i] = FromFloat<T>(sum * v_scale / weight);
      continue;
    }
    float* const to = partials + (head * args.splits + item.part) * kWidth;
    to[dim] = sum;
    if (dim == 0) to[kHeadDim] = highest, to[kHeadDim + 1] = weight;
  }
  SyncWarps();
  if (item.parts == 1) return;
  if (threadIdx.x == 0) {
    int32_t* const counter =
        args.counters + kBarrierCounters + item.row * args.num_kv_heads + item.kv_head;
    *is_last = AddOneAcquireRelease(counter) == item.parts - 1 ? 1 : 0;
    if (*is_last != 0) *counter = 0;
  }
  SyncWarps();
  if (*is_last == 0) return;
  for (int i = static_cast<int>(threadIdx.x); i < heads * kHeadDim; i += kThreads) {
    const int head = i / kHeadDim;
    float sum, weight;
    add_up(
        i % kHeadDim, item.parts,
        [&](int c, int element) {
          return __ldcg(partials + (head * args.splits + c) * kWidth + element);
        },
        sum, weight);
    y[i] = FromFloat<T>(sum * v_scale / weight);
  }
  SyncWarps();
}

}  // namespace inflight::ops::cuda::decode_layers
