// SPDX-License-Identifier: Apache-2.0
// The projection that starts attention, then one CTA per token, which normalises and rotates heads
// of q and k and writes k and v to the cache. A warp has a head at a time, a lane up to four pairs
// of elements that rotate together.
#include <string>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/float32/kernels.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/paged.h"
#include "ops/cuda/reduce.cuh"

namespace inflight::ops::cuda::float32 {
namespace {

constexpr int kTokenThreads = 256;
constexpr int kTokenWarps = kTokenThreads / kWarp;
constexpr int kMaxHeadDim = 256;
constexpr int kLanePairs = kMaxHeadDim / 2 / kWarp;

struct RopeArgs {
  const float* rows;    // [num_tokens, (num_heads + 2 num_kv_heads) * head_dim], bias added
  const float* q_norm;  // [head_dim] or null: of no head; or [num_heads * head_dim]
  const float* k_norm;  // the same; or [num_kv_heads * head_dim]
  bool has_wide_norm;
  float norm_eps;
  const float* cos_sin;      // [max_seq_len, 2, half]
  const int32_t* positions;  // [num_tokens]; read where something rotates
  const int64_t* slots;      // [num_tokens]
  float* q;                  // [num_tokens, num_heads, head_dim], q_stride from token to token
  int64_t q_stride;
  float* cache;  // of the layer: [num_blocks][2][num_kv_heads][block_size][head_dim]
  int num_heads, num_kv_heads, head_dim;
  int half;  // rotary_dim / 2
  bool is_neox;
  int block_size;
};

// Where head `head` of token t goes: q's place, or the token's of the cache, in which heads of k
// and v follow each other as in a row.
__device__ float* TargetOf(const RopeArgs& args, int64_t t, int head) {
  if (head < args.num_heads) return args.q + t * args.q_stride + int64_t{head} * args.head_dim;
  const int64_t slot = args.slots[t];
  const int64_t first_head = slot / args.block_size * 2 * args.num_kv_heads;
  const int64_t line = (first_head + head - args.num_heads) * args.block_size;
  return args.cache + (line + slot % args.block_size) * args.head_dim;
}

// 1 / the root of the mean square of elements [first, first + size) of a row, over the whole CTA.
__device__ float WideScale(const float* row, int64_t first, int64_t size, float eps,
                           BlockReducer& reducer) {
  float squares = 0;
  for (int64_t i = threadIdx.x; i < size; i += kTokenThreads)
    squares = fmaf(row[first + i], row[first + i], squares);
  return 1.0F / sqrtf(reducer.Sum(squares) / static_cast<float>(size) + eps);
}

// One head, by a warp. `wide_scale`: of a norm of all heads.
__device__ void RunHead(const RopeArgs& args, int64_t t, int head, const float* from,
                        float wide_scale) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const bool is_q = head < args.num_heads;
  const bool is_value = head >= args.num_heads + args.num_kv_heads;
  float x[kLanePairs];
  float y[kLanePairs];
  float squares = 0;
  // Calls use(i, pair, at, partner) for each pair of this lane.
  const auto for_each = [&](const auto& use) {
#pragma unroll
    for (int i = 0; i < kLanePairs; ++i) {
      const int pair = lane + i * kWarp;
      if (2 * pair >= args.head_dim) continue;
      const bool is_split = args.is_neox && pair < args.half;
      const int at = is_split ? pair : 2 * pair;
      use(i, pair, at, is_split ? pair + args.half : at + 1);
    }
  };
  for_each([&](int i, int, int at, int partner) {
    x[i] = from[at];
    y[i] = from[partner];
    squares = fmaf(x[i], x[i], fmaf(y[i], y[i], squares));
  });
  if (args.q_norm != nullptr && !is_value) {
    const float of_head =
        1.0F / sqrtf(WarpSum(squares) / static_cast<float>(args.head_dim) + args.norm_eps);
    const float scale = args.has_wide_norm ? wide_scale : of_head;
    const int first = args.has_wide_norm ? head - (is_q ? 0 : args.num_heads) : 0;
    const float* const weights =
        (is_q ? args.q_norm : args.k_norm) + int64_t{first} * args.head_dim;
    for_each([&](int i, int, int at, int partner) {
      x[i] = x[i] * scale * weights[at];
      y[i] = y[i] * scale * weights[partner];
    });
  }
  float* const to = TargetOf(args, t, head);
  for_each([&](int i, int pair, int at, int partner) {
    if (pair < args.half && !is_value) {
      const float* const row = args.cos_sin + int64_t{args.positions[t]} * 2 * args.half + pair;
      const float cos = row[0];
      const float sin = row[args.half];
      const float turned = x[i] * cos - y[i] * sin;
      y[i] = y[i] * cos + x[i] * sin;
      x[i] = turned;
    }
    to[at] = x[i];
    to[partner] = y[i];
  });
}

// q may be written where it was read: by the same lanes, behind the norms of all heads.
__global__ void __launch_bounds__(kTokenThreads) RopeKernel(const RopeArgs args) {
  BeginOverlapped();
  const int64_t t = blockIdx.x;
  const int num_rotated = args.num_heads + args.num_kv_heads;
  const int num_all = num_rotated + args.num_kv_heads;
  const int64_t head_dim = args.head_dim;
  const float* const row = args.rows + t * num_all * head_dim;
  float q_scale = 1;
  float k_scale = 1;
  if (args.has_wide_norm) {
    BlockReducer reducer;
    const int64_t q_width = args.num_heads * head_dim;
    q_scale = WideScale(row, 0, q_width, args.norm_eps, reducer);
    k_scale = WideScale(row, q_width, args.num_kv_heads * head_dim, args.norm_eps, reducer);
  }
  for (auto head = static_cast<int>(threadIdx.x / kWarp); head < num_all; head += kTokenWarps)
    RunHead(args, t, head, row + head * head_dim, head < args.num_heads ? q_scale : k_scale);
}

RopeArgs ArgsOf(const QkvRopeKvParams& p) {
  const KvCacheView& kv = p.kv;
  const bool has_rope = p.rope.style != RopeStyle::kNone;
  return {.rows = p.workspace.as<const float>(),
          .q_norm = p.q_norm.as<const float>(),
          .k_norm = p.k_norm.as<const float>(),
          .has_wide_norm =
              p.q_norm.num_elements() > kv.head_dim || p.k_norm.num_elements() > kv.head_dim,
          .norm_eps = p.norm_eps,
          .cos_sin = has_rope ? p.rope.cos_sin.as<const float>() : nullptr,
          .positions = p.batch.positions.as<const int32_t>(),
          .slots = p.batch.slot_mapping.as<const int64_t>(),
          .q = p.q.as<float>(),
          .q_stride = p.q_stride != 0 ? p.q_stride : int64_t{p.num_heads} * kv.head_dim,
          .cache = reinterpret_cast<float*>(kv.Keys(p.layer, 0, 0)),
          .num_heads = p.num_heads,
          .num_kv_heads = kv.num_kv_heads,
          .head_dim = kv.head_dim,
          .half = has_rope ? p.rope.rotary_dim / 2 : 0,
          .is_neox = p.rope.style == RopeStyle::kNeox,
          .block_size = kv.block_size};
}

}  // namespace

Status QkvRopeKv(const QkvRopeKvParams& p, Stream& stream) {
  RETURN_IF_ERROR(ExpectWeight("weight", p.weight));
  RETURN_IF_ERROR(ExpectInput(p.x, p.weight));
  RETURN_IF_ERROR(Expect("workspace", p.workspace, {DType::kF32},
                         {p.x.values.shape[0], p.weight.out_features}));
  RETURN_IF_ERROR(ValidateRopeKv(p, {}));
  if (p.kv.dtype != DType::kF32 || p.kv.row() != p.kv.head_dim || p.kv.head_dim > kMaxHeadDim)
    return InvalidArgument("kv: got " + std::string(DTypeName(p.kv.dtype)) + " in rows of " +
                           std::to_string(p.kv.row()) + ", needed float32 in rows of head_dim, " +
                           "which is at most " + std::to_string(kMaxHeadDim));
  if (p.batch.num_tokens == 0) return Status::Ok();
  RETURN_IF_ERROR(Project({.x = p.x.values.as<const float>(),
                           .w = static_cast<const float*>(p.weight.data),
                           .bias = p.bias.as<const float>(),
                           .y = p.workspace.as<float>(),
                           .m = p.batch.num_tokens,
                           .n = p.weight.out_features,
                           .k = p.weight.in_features},
                          AsCuda(stream)));
  const Adapters adapters(p.lora, LoraSite::kQkv, 1, p.x.values, p.workspace);
  RETURN_IF_ERROR(adapters.Add(AsCuda(stream)));
  LaunchOverlapped(RopeKernel, static_cast<unsigned>(p.batch.num_tokens), kTokenThreads, 0,
                   AsCuda(stream).handle(), ArgsOf(p));
  return inflight::cuda::LaunchStatus("float32_rope_kv");
}

}  // namespace inflight::ops::cuda::float32
