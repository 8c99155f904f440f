// SPDX-License-Identifier: Apache-2.0
// Products of a tile of 16 rows with up to 8 tokens, whose x lies in shared memory: 16 warps of
// a CTA take parts of k, and other warps add up the sums of a tile.
#pragma once

#include "ops/cuda/activate.cuh"
#include "ops/cuda/attention_mma.cuh"
#include "ops/cuda/decode_layers_ring.cuh"
#include "ops/cuda/integer_halves.cuh"
#include "ops/cuda/shared_access.cuh"
#include "ops/cuda/vector.cuh"

namespace inflight::ops::cuda::decode_layers {

inline constexpr int kTileBarrier = 1;  // of the warps that multiply
__device__ inline void SyncWarps() { SyncThreads(kTileBarrier, kThreads); }

// sum += a b of 16 rows, 16 k and 8 tokens (attention_mma.cuh).
template <typename T>
__device__ inline void AddProduct(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                  uint32_t a3, uint32_t b0, uint32_t b1) {
  const uint32_t a[4] = {a0, a1, a2, a3};
  Mma<T>(sum, a, b0, b1);
}

// One slab: `upper` of the rows lane / 4 and `lower` of those 8 below; `x` is where the tokens' x
// of the slab's first k lies, of token 0.
template <typename T, Form kForm>
__device__ inline void MultiplySlab(const uint4& upper, const uint4& lower, uint32_t x,
                                    int x_stride, int num_tokens, float (&sum)[4],
                                    float (&other)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr Codes kCodes = kForm == Form::kInt4 ? Codes::kInt4 : Codes::kInt8;
  constexpr int kPairs = SlabElements(BitsOf(kForm)) / 32;  // of steps
  const uint32_t x_at = x + min(lane % 8, num_tokens - 1) * x_stride + lane / 8 * 16;
  uint32_t v[kPairs][4];
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) LoadMatrices(x_at + pair * 64, v[pair]);
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
    uint32_t a[4], b[4];
    WidenTwoSteps<T, kCodes>(upper, pair, a);
    WidenTwoSteps<T, kCodes>(lower, pair, b);
    AddProduct<T>(sum, a[0], b[0], a[1], b[1], v[pair][0], v[pair][1]);
    AddProduct<T>(other, a[2], b[2], a[3], b[3], v[pair][2], v[pair][3]);
  }
}

// What a lane of the warp that finishes a tile has of it: rows `low` and `high`, 8 apart in the
// tile, of token lane / 8; what comes from memory is loaded long before.
struct TileRows {
  int low, high;
  float low_scale = 1, high_scale = 1;
  float low_before = 0, high_before = 0;  // what the product is added to, or the angle's cos, sin
  float low_bias = 0, high_bias = 0;
};
static_assert(kMaxDecodeLayersRows * 8 == 32);

// Where sums of tiles wait, and the barriers of those places.
struct SumBuffers {
  float* sums;           // [kSumBuffers][token][row][kSumStride]
  uint32_t full, empty;  // [kSumBuffers]
  int turn = 0;          // tiles of this CTA before the next one

  __device__ float* At(int of_turn) const { return sums + of_turn % kSumBuffers * kTileSumFloats; }
  __device__ uint32_t FullAt(int of_turn) const { return full + of_turn % kSumBuffers * 8; }
  __device__ uint32_t EmptyAt(int of_turn) const { return empty + of_turn % kSumBuffers * 8; }
  __device__ static uint32_t ParityOf(int of_turn) { return of_turn / kSumBuffers & 1; }
};

// This warp's part of a product: sums of its part of k, of each of the CTA's tiles. The tokens' x
// is at `x` already.
template <typename T, Form kForm, int kHeadDim>
__device__ void Multiply(const Args& args, Schedule<kForm, kHeadDim>& schedule, const Ring& ring,
                         Place& at, SumBuffers& buffers, Product product, uint32_t x) {
  constexpr int kSlabK = SlabElements(BitsOf(kForm));
  constexpr int kWarpBytes = kStageRowBytes / kWarps;
  constexpr int kSlabs = kWarpBytes / kSlabBytes;
  constexpr int kSums = 4;  // chains of products that do not wait for each other
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int m = args.num_tokens;
  const Shape shape = schedule.ShapeOf(product);
  const int row_bytes = schedule.RowBytes(shape.k);
  for (int tile = schedule.Begin(shape); tile < shape.num_tiles;
       tile += static_cast<int>(gridDim.x), ++buffers.turn) {
    float sum[kSums][4] = {};
    for (int done = 0; done < row_bytes; done += kStageRowBytes) {
      Await(ring.FullAt(at), at.parity);
      const uint32_t stage =
          ring.StageAt(at) + lane / 4 * kStagePitch + warp * kWarpBytes + lane % 4 * 16;
      const uint32_t x_at = x + (done + warp * kWarpBytes) / kSlabBytes * (2 * kSlabK);
      const int left = row_bytes - done - warp * kWarpBytes;
      if (left >= kWarpBytes) {
        uint4 upper[kSlabs], lower[kSlabs];
#pragma unroll
        for (int s = 0; s < kSlabs; ++s) {
          upper[s] = LoadShared16(stage + s * kSlabBytes);
          lower[s] = LoadShared16(stage + s * kSlabBytes + 8 * kStagePitch);
        }
#pragma unroll
        for (int s = 0; s < kSlabs; ++s)
          MultiplySlab<T, kForm>(upper[s], lower[s], x_at + s * (2 * kSlabK), args.x_stride, m,
                                 sum[2 * s % kSums], sum[(2 * s + 1) % kSums]);
      } else {
        for (int s = 0; s * kSlabBytes < left; ++s)
          MultiplySlab<T, kForm>(LoadShared16(stage + s * kSlabBytes),
                                 LoadShared16(stage + s * kSlabBytes + 8 * kStagePitch),
                                 x_at + s * (2 * kSlabK), args.x_stride, m, sum[0], sum[1]);
      }
      __syncwarp();
      if (lane == 0) Arrive(ring.EmptyAt(at));
      at.Advance(ring.stages);
    }
    Await(buffers.EmptyAt(buffers.turn), SumBuffers::ParityOf(buffers.turn) ^ 1);
    float* const of_tile = buffers.At(buffers.turn);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = lane % 4 * 2 + i % 2;
      if (token < m)
        of_tile[(token * kTileRows + lane / 4 + i / 2 * 8) * kSumStride + warp] =
            (sum[0][i] + sum[1][i]) + (sum[2][i] + sum[3][i]);
    }
    __syncwarp();
    if (lane == 0) Arrive(buffers.FullAt(buffers.turn));
  }
}

// What finishing warp `finisher` does of a product: calls finish(rows, token, low, high) with the
// sums of each of its tiles, times the scales of their rows; rows_of(tile, i, token) with i = lane
// % 8 says which rows a lane finishes. Memory answers late while weights stream, so that rows_of is
// asked a tile ahead.
template <Form kForm, int kHeadDim, typename RowsOf, typename Finish>
__device__ void FinishTiles(const Args& args, Schedule<kForm, kHeadDim>& schedule,
                            SumBuffers& buffers, int finisher, Product product,
                            const RowsOf& rows_of, const Finish& finish) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool has_token = lane / 8 < args.num_tokens;
  const auto ctas = static_cast<int>(gridDim.x);
  const Shape shape = schedule.ShapeOf(product);
  const int first = schedule.Begin(shape);
  const int tiles = first < shape.num_tiles ? (shape.num_tiles - first - 1) / ctas + 1 : 0;
  const auto ask = [&](int i) {
    return i < tiles && has_token ? rows_of(first + i * ctas, lane % 8, lane / 8) : TileRows{};
  };
  int i = (finisher + buffers.turn) % kFinishers;
  TileRows next = ask(i);
  for (; i < tiles; i += kFinishers) {
    const TileRows rows = next;
    next = ask(i + kFinishers);
    const int turn = buffers.turn + i;
    Await(buffers.FullAt(turn), SumBuffers::ParityOf(turn));
    const float* const of_low = buffers.At(turn) + (lane / 8 * kTileRows + lane % 8) * kSumStride;
    const float* const of_high = of_low + 8 * kSumStride;
    float low = 0, high = 0;
    if (has_token) {
#pragma unroll
      for (int w = 0; w < kWarps; ++w) low += of_low[w], high += of_high[w];
    }
    __syncwarp();
    if (lane == 0) Arrive(buffers.EmptyAt(turn));
    if (has_token) finish(rows, lane / 8, low * rows.low_scale, high * rows.high_scale);
  }
  buffers.turn += tiles;
}

// --- x of a product in shared memory ---

__device__ inline uint4 LoadPast1(const void* p) {  // past L1: others of this kernel wrote it
  return __ldcg(static_cast<const uint4*>(p));
}

// Rows of `width` elements.
template <typename T>
__device__ void TakeRows(const Args& args, const void* from, int width, uint32_t x) {
  constexpr int kBatch = 4;  // loads under way
  const int vectors = width / kVector;
  const int count = args.num_tokens * vectors;
  for (int begin = static_cast<int>(threadIdx.x); begin < count; begin += kBatch * kThreads) {
    uint4 held[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int i = begin + j * kThreads;
      if (i < count) held[j] = LoadPast1(static_cast<const T*>(from) + int64_t{i} * kVector);
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int i = begin + j * kThreads;
      if (i < count) StoreShared(x + i / vectors * args.x_stride + i % vectors * 16, held[j]);
    }
  }
  SyncWarps();
}

// A norm's weights, of the vectors that a thread holds of each row.
struct NormWeights {
  float of[kRowVectors][kVector];

  __device__ void Take(const Args& args, const float* weight) {
#pragma unroll
    for (int j = 0; j < kRowVectors; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * kThreads;
      if (i * kVector < args.hidden) Load(weight + i * kVector, of[j]);
    }
  }
};

// RmsNorm of the residual's rows goes to put(token, vector, values), each vector of 8 elements
// once; all threads that multiply take part. `slots`: [kMaxDecodeLayersRows][kWarps] of shared
// memory.
template <typename T, typename Put>
__device__ void NormRows(const Args& args, const NormWeights& weights, float* slots,
                         const Put& put) {
  constexpr int kRows = 2;  // at a time
  const auto first = static_cast<int>(threadIdx.x);
  for (int token = 0; token < args.num_tokens; token += kRows) {
    uint4 held[kRows][kRowVectors];
#pragma unroll
    for (int t = 0; t < kRows; ++t)
#pragma unroll
      for (int j = 0; j < kRowVectors; ++j) {
        const int at = (first + j * kThreads) * kVector;
        held[t][j] = make_uint4(0, 0, 0, 0);
        if (token + t < args.num_tokens && at < args.hidden)
          held[t][j] =
              LoadPast1(static_cast<const T*>(args.residual) + (token + t) * args.hidden + at);
      }
    float* const of_tokens = slots + token * kWarps;
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      float squares = 0;
#pragma unroll
      for (int j = 0; j < kRowVectors; ++j) {
        float v[kVector];
        Unpack<T>(held[t][j], v);
#pragma unroll
        for (int k = 0; k < kVector; ++k) squares += v[k] * v[k];
      }
      squares = WarpSum(squares);
      if (threadIdx.x % 32 == 0) of_tokens[t * kWarps + threadIdx.x / 32] = squares;
    }
    SyncWarps();
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      if (token + t >= args.num_tokens) break;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += of_tokens[t * kWarps + w];
      const float scale = rsqrtf(sum / static_cast<float>(args.hidden) + args.norm_eps);
#pragma unroll
      for (int j = 0; j < kRowVectors; ++j) {
        const int i = first + j * kThreads;
        if (i * kVector >= args.hidden) break;
        float v[kVector];
        Unpack<T>(held[t][j], v);
#pragma unroll
        for (int k = 0; k < kVector; ++k) v[k] = v[k] * weights.of[j][k] * scale;
        put(token + t, i,
            make_uint4(PackTwo<T>(v[0], v[1]), PackTwo<T>(v[2], v[3]), PackTwo<T>(v[4], v[5]),
                       PackTwo<T>(v[6], v[7])));
      }
    }
  }
}

template <typename T>
__device__ void TakeNormedRows(const Args& args, const NormWeights& weights, uint32_t x,
                               float* slots) {
  NormRows<T>(args, weights, slots, [&](int token, int i, const uint4& words) {
    StoreShared(x + token * args.x_stride + i * 16, words);
  });
  SyncWarps();
}

}  // namespace inflight::ops::cuda::decode_layers
