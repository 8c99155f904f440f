// SPDX-License-Identifier: Apache-2.0
// The kernel of DecodeLayers, for one form of weights in a source of its own. Twenty warps on each
// multiprocessor: two bring weights (decode_layers_ring.cuh), sixteen multiply, two add up and
// write. A layer has five parts with a barrier of the whole grid behind each:
//
//   norm, q k v, rotation, cache | attention | dense, residual | norm, gated product | proj,
//   residual
//
// Every CTA norms all rows for itself. A row's sums are added up in one order, which the shape and
// the number of multiprocessors give.

#pragma once

#include "base/status_macros.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/decode_layers_attention.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/shared_memory_limit.h"
#include "tensor/cuda_status.h"

namespace inflight::ops::cuda::decode_layers {

// --- the grid's barrier ---

// Three counters in turns: who passes a barrier knows that all have left the one before, whose
// counter it may clear.
struct GridBarrier {
  int32_t* counters;
  int turn = 0;

  // What threads of all CTAs wrote before is seen by all behind it, past L1.
  __device__ void Wait() {
    SyncAll();
    if (threadIdx.x == 0) {
      const auto ctas = static_cast<int>(gridDim.x);
      AddOneAcquireRelease(counters + turn);
      for (int tries = 0; Load(counters + turn) < ctas; ++tries)
        if (tries == 1 << 28) __trap();  // a defect: fails rather than hangs
      if (blockIdx.x == 0) counters[turn == 0 ? 2 : turn - 1] = 0;
    }
    SyncAll();
    turn = turn == 2 ? 0 : turn + 1;
  }
  // Behind the last one: leaves zeros.
  __device__ void End() const {
    if (threadIdx.x != 0) return;
    const int last = turn == 0 ? 2 : turn - 1;
    if (AddOneAcquireRelease(counters + 3) + 1 < static_cast<int>(gridDim.x)) return;
    counters[last] = 0;
    counters[3] = 0;
  }

  // Of the warps that multiply and those that finish.
  __device__ static void SyncAll() { SyncThreads(2, kThreads + 32 * kFinishers); }

  __device__ static int Load(const int32_t* counter) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
  }
};

// --- the parts of a layer ---

template <typename T, bool kIsFp8>
__device__ void StoreCached(const Args& args, std::byte* head, int64_t slot, int row_elements,
                            int element, float value, float scale) {
  const int64_t block = slot / args.block_size;
  const int64_t at = block * args.block_bytes +
                     (slot % args.block_size * row_elements + element) * (kIsFp8 ? 1 : 2);
  if constexpr (kIsFp8)
    *reinterpret_cast<Fp8*>(head + at) = FromFloat<Fp8>(value / scale);
  else
    *reinterpret_cast<T*>(head + at) = FromFloat<T>(value);
}

// What becomes of the products' sums; a finishing warp's.
template <typename T, Form kForm, bool kIsFp8, int kHeadDim>
struct Finisher {
  const Args& args;
  SumBuffers buffers;
  int index;  // among the finishing warps
  Schedule<kForm, kHeadDim> schedule;
  // Of the token whose rows this lane finishes.
  int position = 0;
  int64_t slot = 0;

  __device__ Finisher(const Args& a, const SumBuffers& b, int i)
      : args(a), buffers(b), index(i), schedule(a) {
    const auto token = static_cast<int>(threadIdx.x) % 32 / 8;
    if (token >= args.num_tokens) return;
    position = args.positions[token];
    slot = args.slots[token];
  }

  __device__ static float ScaleOf(const LinearWeights& weights, int row) {
    return __ldg(weights.scales + row);
  }
  __device__ static TileRows RowsOf(const LinearWeights& weights, int low, int high) {
    return {low, high, ScaleOf(weights, low), ScaleOf(weights, high)};
  }

  __device__ void Qkv(int layer_index) {
    const LayerArgs& layer = args.layers[layer_index];
    constexpr int kHalf = kHeadDim / 2;
    std::byte* const cache = args.cache + layer_index * args.layer_bytes;
    FinishTiles(
        args, schedule, buffers, index, Product::kQkv,
        [&](int tile, int i, int) {
          TileRows rows = RowsOf(layer.qkv, schedule.QkvRow(tile, i), schedule.QkvRow(tile, i + 8));
          const float* const angles =
              args.cos_sin + int64_t{position} * kHeadDim + rows.low % kHeadDim;
          rows.low_before = __ldg(angles);
          rows.high_before = __ldg(angles + kHalf);
          if (layer.qkv_bias != nullptr) {
            rows.low_bias = __ldg(layer.qkv_bias + rows.low);
            rows.high_bias = __ldg(layer.qkv_bias + rows.high);
          }
          return rows;
        },
        [&](const TileRows& rows, int token, float low, float high) {
          const int head = rows.low / kHeadDim;
          const int dim = rows.low % kHeadDim;
          low += rows.low_bias;
          high += rows.high_bias;
          if (head < args.num_heads + args.num_kv_heads) {
            const float cos = rows.low_before, sin = rows.high_before;
            const float turned = low * cos - high * sin;
            high = high * cos + low * sin;
            low = turned;
          }
          if (head < args.num_heads) {
            T* const q = static_cast<T*>(args.q) + token * args.q_stride + rows.low;
            q[0] = FromFloat<T>(low);
            q[kHalf] = FromFloat<T>(high);
            return;
          }
          const int kv_head = head - args.num_heads;  // values' behind keys'
          const float scale = kv_head < args.num_kv_heads ? layer.k_scale : layer.v_scale;
          std::byte* const to = cache + kv_head * args.head_bytes;
          StoreCached<T, kIsFp8>(args, to, slot, kHeadDim, dim, low, scale);
          StoreCached<T, kIsFp8>(args, to, slot, kHeadDim, dim + kHalf, high, scale);
        });
  }

  // residual += delta_factor * x W^T
  __device__ void AddToResidual(Product product, const LinearWeights& weights) {
    T* const residual = static_cast<T*>(args.residual);
    FinishTiles(
        args, schedule, buffers, index, product,
        [&](int tile, int i, int token) {
          TileRows rows = RowsOf(weights, tile * kTileRows + i, tile * kTileRows + i + 8);
          rows.low_before = ToFloat(__ldcg(residual + token * args.hidden + rows.low));
          rows.high_before = ToFloat(__ldcg(residual + token * args.hidden + rows.high));
          return rows;
        },
        [&](const TileRows& rows, int token, float low, float high) {
          const auto add = [&](int row, float delta, float before) {
            residual[token * args.hidden + row] =
                FromFloat<T>(fmaf(delta, args.delta_factor, before));
          };
          add(rows.low, low, rows.low_before);
          add(rows.high, high, rows.high_before);
        });
  }

  __device__ void Gated(const LayerArgs& layer) {
    FinishTiles(
        args, schedule, buffers, index, Product::kGated,
        [&](int tile, int i, int) {
          const int row = tile * 8 + i;
          return TileRows{row, row, ScaleOf(layer.fc, row), ScaleOf(layer.gate, row)};
        },
        [&](const TileRows& rows, int token, float low, float high) {
          static_cast<T*>(args.inner)[int64_t{token} * args.intermediate + rows.low] =
              FromFloat<T>(Activate(args.activation, low) * high);
        });
  }

  __device__ void Run(GridBarrier barrier) {
    for (int i = 0; i < args.num_layers; ++i) {
      Qkv(i);
      barrier.Wait();
      barrier.Wait();  // for attention
      AddToResidual(Product::kDense, args.layers[i].dense);
      barrier.Wait();
      Gated(args.layers[i]);
      barrier.Wait();
      AddToResidual(Product::kProj, args.layers[i].proj);
      barrier.Wait();
    }
  }
};

// Asks L2 for what the parts to come read beside their products.
__device__ inline void Prefetch(const float* from, int count) {
  for (int i = static_cast<int>(threadIdx.x) * 32; i < count; i += kThreads * 32)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i));
}

template <typename T, Form kForm, bool kIsFp8, int kHeadDim>
__global__ void __launch_bounds__(kAllThreads, 1) Kernel(const __grid_constant__ Args args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ __align__(8) uint64_t barriers[2 * kMaxStages + 2 * kSumBuffers];
  __shared__ float slots[kMaxDecodeLayersRows * kWarps];
  __shared__ int is_last;
  const Ring ring = {.data = SharedAddress(shared),
                     .full = SharedAddress(barriers),
                     .empty = SharedAddress(barriers + kMaxStages),
                     .stages = args.stages};
  std::byte* const x_data = shared + args.stages * kStageBytes;
  SumBuffers buffers = {.sums = reinterpret_cast<float*>(x_data + args.x_bytes),
                        .full = SharedAddress(barriers + 2 * kMaxStages),
                        .empty = SharedAddress(barriers + 2 * kMaxStages + kSumBuffers)};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < args.stages; ++stage) {
      InitBarrier(ring.full + stage * 8, kCopiers);
      InitBarrier(ring.empty + stage * 8, kWarps);
    }
    for (int i = 0; i < kSumBuffers; ++i) {
      InitBarrier(buffers.full + i * 8, kWarps);
      InitBarrier(buffers.empty + i * 8, 1);
    }
    FenceBarriers();
  }
  __syncthreads();
  GridBarrier barrier = {args.counters};
  if (threadIdx.x >= kThreads) {
    LeaveRegisters<56>();
    const int warp = static_cast<int>(threadIdx.x) / 32 - kWarps;
    if (warp < kCopiers) return CopyAllWeights<kForm, kHeadDim>(args, ring, warp);
    return Finisher<T, kForm, kIsFp8, kHeadDim>(args, buffers, warp - kCopiers).Run(barrier);
  }
  TakeRegisters<104>();

  const uint32_t x = SharedAddress(x_data);
  Schedule<kForm, kHeadDim> schedule(args);
  Place at;
  const auto multiply = [&](Product product) {
    Multiply<T>(args, schedule, ring, at, buffers, product, x);
  };
  NormWeights norm;
  norm.Take(args, args.layers[0].input_norm);
  const int num_items = args.num_tokens * args.num_kv_heads * args.splits;
  const AttentionItem first_item(args, static_cast<int>(blockIdx.x));
  for (int i = 0; i < args.num_layers; ++i) {
    const LayerArgs& layer = args.layers[i];
    const float* const next_norm =
        i + 1 < args.num_layers ? args.layers[i + 1].input_norm : args.final_norm;
    if (static_cast<int>(blockIdx.x) == i % static_cast<int>(gridDim.x)) {
      Prefetch(layer.post_norm, args.hidden);
      Prefetch(next_norm, args.hidden);
    }
    TakeNormedRows<T>(args, norm, x, slots);
    multiply(Product::kQkv);
    first_item.template PrefetchFirst<kHeadDim*(kIsFp8 ? 1 : 2)>(args, i);
    barrier.Wait();
    if (first_item.HasPart())
      Attend<T, kIsFp8, kHeadDim>(args, i, first_item, reinterpret_cast<float*>(x_data), &is_last);
    for (int item = static_cast<int>(blockIdx.x + gridDim.x); item < num_items;
         item += static_cast<int>(gridDim.x))
      if (const AttentionItem next(args, item); next.HasPart())
        Attend<T, kIsFp8, kHeadDim>(args, i, next, reinterpret_cast<float*>(x_data), &is_last);
    barrier.Wait();
    TakeRows<T>(args, args.attention, args.num_heads * kHeadDim, x);
    multiply(Product::kDense);
    norm.Take(args, layer.post_norm);
    barrier.Wait();
    TakeNormedRows<T>(args, norm, x, slots);
    multiply(Product::kGated);
    barrier.Wait();
    TakeRows<T>(args, args.inner, args.intermediate, x);
    multiply(Product::kProj);
    norm.Take(args, next_norm);
    barrier.Wait();
  }
  NormRows<T>(args, norm, slots, [&](int token, int i, const uint4& words) {
    if (token == static_cast<int>(blockIdx.x))
      *reinterpret_cast<uint4*>(static_cast<T*>(args.y) + token * args.hidden + i * kVector) =
          words;
  });
  barrier.End();
#endif
}

// --- its launch ---

template <typename T, Form kForm, bool kIsFp8, int kHeadDim>
Status Launch(const Args& args, CudaStream& stream) {
  const auto kernel = Kernel<T, kForm, kIsFp8, kHeadDim>;
  const auto limit = static_cast<int>(stream.gpu().max_shared_bytes_per_block);
  static SharedMemoryLimit shared_memory;
  const int shared = args.stages * kStageBytes + args.x_bytes + kSumFloats * 4;
  RETURN_IF_ERROR(shared_memory.Raise(kernel, limit - kStaticBytes, stream));
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;  // all CTAs run at once: they wait for each other
  attribute.val.cooperative = 1;
  const cudaLaunchConfig_t config = {.gridDim = dim3(static_cast<unsigned>(stream.num_sms())),
                                     .blockDim = dim3(kAllThreads),
                                     .dynamicSmemBytes = static_cast<size_t>(shared),
                                     .stream = stream.handle(),
                                     .attrs = &attribute,
                                     .numAttrs = 1};
  return inflight::cuda::ToStatus(cudaLaunchKernelEx(&config, kernel, args), "decode_layers");
}

template <Form kForm>
Status LaunchForm(const Args& args, DType dtype, DType kv_dtype, int head_dim, CudaStream& stream) {
  return WithHalf(dtype, [&]<typename T>(std::type_identity<T>) {
    const bool is_fp8 = kv_dtype == DType::kF8E4M3;
    if (head_dim == 64)
      return is_fp8 ? Launch<T, kForm, true, 64>(args, stream)
                    : Launch<T, kForm, false, 64>(args, stream);
    return is_fp8 ? Launch<T, kForm, true, 128>(args, stream)
                  : Launch<T, kForm, false, 128>(args, stream);
  });
}

}  // namespace inflight::ops::cuda::decode_layers
