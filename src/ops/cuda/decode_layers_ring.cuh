// SPDX-License-Identifier: Apache-2.0
// The weights' way into shared memory: some warps copy rows of tiles, in the order in which all
// layers' products take them, into a ring of stages (cp.async.bulk, PTX ISA). They wait for nothing
// but free stages, since weights do not depend on what is computed.
#pragma once

#include "ops/cuda/cache_policy.cuh"
#include "ops/cuda/decode_layers_args.h"
#include "ops/cuda/hopper.cuh"
#include "ops/tensor_core_order.h"

namespace inflight::ops::cuda::decode_layers {

enum class Product : uint8_t { kQkv, kDense, kGated, kProj };

// A product of a layer: its tiles of 16 rows, which CTAs take in turns.
struct Shape {
  int num_tiles;
  int k;
};

template <Form kForm, int kHeadDim>
struct Schedule {
  const Args& args;
  int first = 0;  // the CTA that has tile 0 of the next product

  __device__ explicit Schedule(const Args& a) : args(a) {}

  __device__ Shape ShapeOf(Product product) const {
    switch (product) {
      case Product::kQkv:
        return {(args.num_heads + 2 * args.num_kv_heads) * (kHeadDim / kTileRows), args.hidden};
      case Product::kDense:
        return {args.hidden / kTileRows, args.num_heads * kHeadDim};
      case Product::kGated:
        return {args.intermediate / (kTileRows / 2), args.hidden};
      default:
        return {args.hidden / kTileRows, args.intermediate};
    }
  }
  // This CTA's first tile of the product that comes next.
  __device__ int Begin(const Shape& shape) {
    const int ctas = static_cast<int>(gridDim.x);
    int tile = static_cast<int>(blockIdx.x) - first;
    if (tile < 0) tile += ctas;
    first = (first + shape.num_tiles) % ctas;
    return tile;
  }
  static __device__ int RowBytes(int k) { return k * BitsOf(kForm) / 8; }

  // Row i < 16 of a tile. Of q, k and v the 8 rows from 8 p on of a head and those that rotate with
  // them; of gated products 8 rows of both branches.
  static __device__ int QkvRow(int tile, int i) {
    constexpr int kTiles = kHeadDim / kTileRows;
    return tile / kTiles * kHeadDim + tile % kTiles * 8 + i % 8 + i / 8 * (kHeadDim / 2);
  }
  __device__ const uint8_t* RowOf(const LayerArgs& layer, Product product, int tile, int i,
                                  int row_bytes) const {
    switch (product) {
      case Product::kQkv:
        return layer.qkv.rows + static_cast<int64_t>(QkvRow(tile, i)) * row_bytes;
      case Product::kDense:
        return layer.dense.rows + static_cast<int64_t>(tile * kTileRows + i) * row_bytes;
      case Product::kGated:
        return (i < 8 ? layer.fc.rows : layer.gate.rows) +
               static_cast<int64_t>(tile * 8 + i % 8) * row_bytes;
      default:
        return layer.proj.rows + static_cast<int64_t>(tile * kTileRows + i) * row_bytes;
    }
  }
};

// A place in the ring, and which time round it is.
struct Place {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void Advance(int stages) {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

struct Ring {
  uint32_t data;         // [stages] of kStageBytes
  uint32_t full, empty;  // [stages] barriers
  int stages;

  __device__ uint32_t StageAt(const Place& at) const { return data + at.stage * kStageBytes; }
  __device__ uint32_t FullAt(const Place& at) const { return full + at.stage * 8; }
  __device__ uint32_t EmptyAt(const Place& at) const { return empty + at.stage * 8; }
};

__device__ inline void CopyBulk(uint32_t to, const void* from, int bytes, uint32_t barrier,
                                uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// What copying warp `copier` does from the beginning to the end of the kernel.
template <Form kForm, int kHeadDim>
__device__ void CopyAllWeights(const Args& args, const Ring& ring, int copier) {
  constexpr int kRows = kTileRows / kCopiers;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint64_t policy = EvictFirst();
  Schedule<kForm, kHeadDim> schedule(args);
  Place at;
  for (int layer = 0; layer < args.num_layers; ++layer) {
    const LayerArgs& weights = args.layers[layer];
    for (int p = 0; p < 4; ++p) {
      const auto product = static_cast<Product>(p);
      const Shape shape = schedule.ShapeOf(product);
      const int row_bytes = schedule.RowBytes(shape.k);
      for (int tile = schedule.Begin(shape); tile < shape.num_tiles;
           tile += static_cast<int>(gridDim.x)) {
        const uint8_t* const row =
            schedule.RowOf(weights, product, tile, kRows * copier + lane % kRows, row_bytes);
        for (int done = 0; done < row_bytes; done += kStageRowBytes) {
          const int bytes = min(kStageRowBytes, row_bytes - done);
          Await(ring.EmptyAt(at), at.parity ^ 1);
          if (lane == 0) ArriveExpecting(ring.FullAt(at), bytes * kRows);
          __syncwarp();
          if (lane < kRows)
            CopyBulk(ring.StageAt(at) + (kRows * copier + lane) * kStagePitch, row + done, bytes,
                     ring.FullAt(at), policy);
          at.Advance(ring.stages);
        }
      }
    }
  }
}

}  // namespace inflight::ops::cuda::decode_layers
