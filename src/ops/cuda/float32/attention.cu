// SPDX-License-Identifier: Apache-2.0
// Attention: a CTA has one head of one token, each of its warps every eighth key that the token
// sees, by online softmax; then the warps' sums meet in their order. A lane has elements lane,
// lane + 32, ... of the head. So a token's result depends on its position and its keys alone.
#include <bit>
#include <string>

#include "base/status_macros.h"
#include "ops/attention.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/float32/kernels.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/paged.h"
#include "ops/cuda/reduce.cuh"

namespace inflight::ops::cuda::float32 {
namespace {

constexpr int kHeadWarps = 8;
constexpr int kMaxHeadDim = 256;

struct HeadArgs {
  const float* q;  // [num_tokens][q_stride]
  int64_t q_stride;
  float* y;            // [num_tokens][num_heads * head_dim]
  const float* cache;  // of this layer
  int head_dim, num_heads, num_kv_heads, block_shift;
  const int32_t* tables;  // [lines][table_stride]
  int64_t table_stride;
  const int32_t* table_rows;    // null: row r has line r
  const int32_t* cu_seqlens_q;  // [num_rows + 1]; read of rows that are no decode rows
  const int32_t* seq_lens;      // [num_rows]
  int num_rows, num_decode_rows;
  const uint8_t* tree_shifts;  // [num_decode_rows][kMaxTreeDepth] or null
  float scale, softcap;
  const float* sink_logits;  // [num_heads] or null
  SlidingWindow sliding;
};

struct Place {
  int row;
  int position;
};

__device__ Place PlaceOf(const HeadArgs& args, int token) {
  if (token < args.num_decode_rows) return {token, args.seq_lens[token] - 1};
  int low = args.num_decode_rows;  // the last row that begins at or before the token
  int high = args.num_rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (args.cu_seqlens_q[middle] <= token)
      low = middle;
    else
      high = middle - 1;
  }
  return {low, args.seq_lens[low] - (args.cu_seqlens_q[low + 1] - token)};
}

// Of the keys that one warp has seen: the largest score, the sum of e^(score - largest), and that
// of values times these.
template <int kPerLane>
struct Softmax {
  float largest = -INFINITY;
  float sum = 0;
  float values[kPerLane] = {};
};

template <int kPerLane>
__device__ Softmax<kPerLane> RunKeys(const HeadArgs& args, const Place& place, int head,
                                     const float (&q)[kPerLane]) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  const int line = args.table_rows == nullptr ? place.row : args.table_rows[place.row];
  const int32_t* const table = args.tables + line * args.table_stride;
  const int kv_head = head / (args.num_heads / args.num_kv_heads);
  const bool has_shifts = args.tree_shifts != nullptr && place.row < args.num_decode_rows;
  const uint8_t* const shifts = args.tree_shifts + int64_t{place.row} * kMaxTreeDepth;
  const int num_sinks = args.sliding.num_sinks;
  const int num_hidden = max(0, args.sliding.First(place.position) - num_sinks);
  const int num_keys = place.position + 1 - num_hidden;
  const int64_t value_distance = (int64_t{args.num_kv_heads} << args.block_shift) * args.head_dim;
  Softmax<kPerLane> softmax;
  for (int i = warp; i < num_keys; i += kHeadWarps) {
    const int position = i < num_sinks ? i : i + num_hidden;
    const int back = place.position - position;
    const int at = position + (has_shifts && back < kMaxTreeDepth ? shifts[back] : 0);
    const int64_t block = table[at >> args.block_shift];
    const int64_t key_line = ((block * 2 * args.num_kv_heads + kv_head) << args.block_shift) +
                             (at & ((1 << args.block_shift) - 1));
    const float* const key = args.cache + key_line * args.head_dim;
    const float* const value = key + value_distance;
    float score = 0;
    float v[kPerLane];
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int d = lane + j * kWarp;
      score = fmaf(q[j], d < args.head_dim ? key[d] : 0.0F, score);
      v[j] = d < args.head_dim ? value[d] : 0.0F;
    }
    score = WarpSum(score) * args.scale;
    if (args.softcap != 0.0F) score = args.softcap * tanhf(score / args.softcap);
    const float largest = fmaxf(softmax.largest, score);
    const float before = expf(softmax.largest - largest);
    const float weight = expf(score - largest);
    softmax.largest = largest;
    softmax.sum = fmaf(softmax.sum, before, weight);
#pragma unroll
    for (int j = 0; j < kPerLane; ++j)
      softmax.values[j] = fmaf(weight, v[j], softmax.values[j] * before);
  }
  return softmax;
}

// CTA (t, h).
template <int kPerLane>
__global__ void __launch_bounds__(kHeadWarps* kWarp) AttentionKernel(const HeadArgs args) {
  __shared__ float largest[kHeadWarps];
  __shared__ float sums[kHeadWarps];
  __shared__ float values[kHeadWarps][kPerLane * kWarp];
  BeginOverlapped();
  const auto token = static_cast<int>(blockIdx.x);
  const auto head = static_cast<int>(blockIdx.y);
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  const Place place = PlaceOf(args, token);
  const float* const q_row = args.q + token * args.q_stride + int64_t{head} * args.head_dim;
  float q[kPerLane];
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const int d = lane + j * kWarp;
    q[j] = d < args.head_dim ? q_row[d] : 0.0F;
  }
  const Softmax<kPerLane> own = RunKeys<kPerLane>(args, place, head, q);
  if (lane == 0) {
    largest[warp] = own.largest;
    sums[warp] = own.sum;
  }
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) values[warp][lane + j * kWarp] = own.values[j];
  __syncthreads();

  float of_all = args.sink_logits == nullptr ? -INFINITY : args.sink_logits[head];
  const float sink = of_all;
  for (int w = 0; w < kHeadWarps; ++w) of_all = fmaxf(of_all, largest[w]);
  float sum = args.sink_logits == nullptr ? 0.0F : expf(sink - of_all);
  for (int w = 0; w < kHeadWarps; ++w) sum = fmaf(sums[w], expf(largest[w] - of_all), sum);
  float* const y = args.y + (int64_t{token} * args.num_heads + head) * args.head_dim;
  for (auto d = static_cast<int>(threadIdx.x); d < args.head_dim; d += kHeadWarps * kWarp) {
    float value = 0;
    for (int w = 0; w < kHeadWarps; ++w)
      value = fmaf(values[w][d], expf(largest[w] - of_all), value);
    y[d] = value / sum;
  }
}

Status Check(const AttentionParams& p) {
  const int64_t num_heads = p.q.shape.rank() == 3 ? p.q.shape[1] : 0;
  const KvCacheView& kv = p.kv;
  if (kv.dtype != DType::kF32)
    return InvalidArgument("kv.dtype: got " + std::string(DTypeName(kv.dtype)) +
                           ", needed float32");
  if (kv.head_dim <= 0 || kv.head_dim > kMaxHeadDim || kv.row() != kv.head_dim)
    return Unimplemented("kv.head_dim: got " + std::to_string(kv.head_dim) + " in rows of " +
                         std::to_string(kv.row()) + "; needed 1 to " + std::to_string(kMaxHeadDim) +
                         ", in rows of as many");
  RETURN_IF_ERROR(ValidatePaged(p.batch, kv, static_cast<int>(num_heads), p.sliding));
  if (p.layer < 0 || p.layer >= kv.num_layers)
    return InvalidArgument("layer: got " + std::to_string(p.layer) + ", the cache has " +
                           std::to_string(kv.num_layers));
  const int64_t num_tokens = p.batch.num_tokens;
  const int64_t width = num_heads * kv.head_dim;
  RETURN_IF_ERROR(Expect("q", p.q, {DType::kF32}, {num_tokens, num_heads, kv.head_dim}));
  if (p.q_stride != 0 && p.q_stride < width)
    return InvalidArgument("q_stride: got " + std::to_string(p.q_stride) +
                           ", needed a number from " + std::to_string(width) + " on");
  if (!(p.scale > 0))
    return InvalidArgument("scale: got " + std::to_string(p.scale) + ", needed > 0");
  if (!(p.softcap >= 0))
    return InvalidArgument("softcap: got " + std::to_string(p.softcap) + ", needed >= 0");
  RETURN_IF_ERROR(ExpectOrEmpty("sink_logits", p.sink_logits, {DType::kF32}, {num_heads}));
  return Expect("y", p.y, {DType::kF32}, {num_tokens, width});
}

HeadArgs ArgsOf(const AttentionParams& p) {
  const KvCacheView& kv = p.kv;
  const auto num_heads = static_cast<int>(p.q.shape[1]);
  return {.q = p.q.as<const float>(),
          .q_stride = p.q_stride == 0 ? int64_t{num_heads} * kv.head_dim : p.q_stride,
          .y = p.y.as<float>(),
          .cache = reinterpret_cast<const float*>(kv.Keys(p.layer, 0, 0)),
          .head_dim = kv.head_dim,
          .num_heads = num_heads,
          .num_kv_heads = kv.num_kv_heads,
          .block_shift = std::countr_zero(static_cast<unsigned>(kv.block_size)),
          .tables = p.batch.block_tables.as<const int32_t>(),
          .table_stride = p.batch.block_tables.shape[1],
          .table_rows = p.batch.table_rows.as<const int32_t>(),
          .cu_seqlens_q = p.batch.cu_seqlens_q.as<const int32_t>(),
          .seq_lens = p.batch.seq_lens_kv.as<const int32_t>(),
          .num_rows = p.batch.num_rows,
          .num_decode_rows = p.batch.num_decode_rows,
          .tree_shifts = p.batch.tree_shifts.as<const uint8_t>(),
          .scale = p.scale,
          .softcap = p.softcap,
          .sink_logits = p.sink_logits.as<const float>(),
          .sliding = p.sliding};
}

}  // namespace

Status Attention(const AttentionParams& p, Stream& stream) {
  RETURN_IF_ERROR(Check(p));
  if (p.batch.num_tokens == 0) return Status::Ok();
  const HeadArgs args = ArgsOf(p);
  const dim3 grid(static_cast<unsigned>(p.batch.num_tokens), static_cast<unsigned>(args.num_heads));
  const auto launch = [&](auto kernel) {
    LaunchOverlapped(kernel, grid, kHeadWarps * kWarp, 0, AsCuda(stream).handle(), args);
  };
  if (args.head_dim <= 64)
    launch(AttentionKernel<2>);
  else if (args.head_dim <= 128)
    launch(AttentionKernel<4>);
  else
    launch(AttentionKernel<8>);
  return inflight::cuda::LaunchStatus("float32_attention");
}

}  // namespace inflight::ops::cuda::float32
