// SPDX-License-Identifier: Apache-2.0
// From projected rows [q | k | v] to rotated q and to the cache: pending scales and bias are
// applied, heads of q and k normalised and rotated in float32, each value is rounded once. Moves 2
// * width elements per token.
//
// A thread has one unit: two vectors of eight elements of one head that rotate together.
//   kNeox   (j, j + rotary_dim / 2): vectors at 8u and 8u + rotary_dim / 2; what does not rotate
//           comes behind, two neighbouring vectors a unit
//   kGptj   (2j, 2j + 1): neighbouring vectors, each of which rotates by itself; also without
//           rotation, then rotary_dim = 0
#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/paged.h"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/vector.cuh"

namespace inflight::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWideThreads = 256;  // of a token whose norms are of all its heads

struct RopeKvArgs {
  const void* rows;             // [num_tokens, (num_heads + 2 num_kv_heads) * head_dim]
  const float* token_scales;    // [num_tokens]; null = rows are not raw
  float token_factor;           // of each of them
  const float* feature_scales;  // [width of rows]
  const float* bias;            // [width of rows] or null
  const float* q_norm;          // [head_dim] or null: of no head; or [num_heads * head_dim]
  const float* k_norm;          // the same; or [num_kv_heads * head_dim]
  float norm_eps;
  const float* cos_sin;      // [max_seq_len, 2, half]
  const int32_t* positions;  // [num_tokens]; read where something rotates
  const int64_t* slots;      // [num_tokens]
  void* q;                   // [num_tokens, num_heads, row_dim], q_stride from token to token
  int64_t q_stride;
  void* cache;              // of the layer: [num_blocks][2][num_kv_heads][block_size][row_dim]
  float inverse_scales[2];  // of keys and values in an e4m3 cache
  int first_head;           // q heads before it stay as they are
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int row_dim;
  int half;  // rotary_dim / 2
  int block_size;
  int block_shift;  // log2(block_size), or -1
};

// Where a head of token t goes: q's place, or `slot` of the cache.
template <typename T, typename Cache, typename Use>
__device__ void WithTarget(const RopeKvArgs& args, int64_t t, int head, int64_t slot,
                           const Use& use) {
  if (head < args.num_heads) {
    use(static_cast<T*>(args.q) + t * args.q_stride + int64_t{head} * args.row_dim, 1.0F);
    return;
  }
  int64_t block;
  int64_t offset;
  if (args.block_shift >= 0) {
    block = slot >> args.block_shift;
    offset = slot & (args.block_size - 1);
  } else {
    block = slot / args.block_size;
    offset = slot % args.block_size;
  }
  // Heads of k and v follow each other in a row as in a block.
  const int kv_head = head - args.num_heads;
  const int64_t line = (block * 2 * args.num_kv_heads + kv_head) * args.block_size + offset;
  const float scale = kv_head < args.num_kv_heads ? args.inverse_scales[0] : args.inverse_scales[1];
  use(static_cast<Cache*>(args.cache) + line * args.row_dim, scale);
}

template <typename To>
__device__ void StoreScaled(To* to, float (&x)[kVector], float scale) {
  if constexpr (std::is_same_v<To, Fp8>) {
#pragma unroll
    for (int k = 0; k < kVector; ++k) x[k] *= scale;
  }
  Store(to, x);
}

// What is pending on the features from i on: x * token scale * factors + bias. Loaded while the
// kernel before ends, as far as it belongs to the model.
struct Pending {
  const RopeKvArgs& args;
  float factors[kVector];
  float bias[kVector];

  __device__ Pending(const RopeKvArgs& pending, int64_t i) : args(pending) {
    if (args.token_scales != nullptr) Load(args.feature_scales + i, factors);
    if (args.bias != nullptr) Load(args.bias + i, bias);
  }
  __device__ void Apply(int64_t t, float (&x)[kVector]) const {
    if (args.token_scales != nullptr) {
      const float token_scale = args.token_scales[t] * args.token_factor;
#pragma unroll
      for (int k = 0; k < kVector; ++k) x[k] = x[k] * token_scale * factors[k];
    }
    if (args.bias == nullptr) return;
#pragma unroll
    for (int k = 0; k < kVector; ++k) x[k] += bias[k];
  }
};

// (x, y) turned by the angle of (cos, sin): arXiv:2104.09864 eq. 34.
__device__ void Rotate(float& x, float& y, float cos, float sin) {
  const float turned = x * cos - y * sin;
  y = y * cos + x * sin;
  x = turned;
}

// Sums of squares of the heads that a CTA of (units, heads) threads holds, each over its units in
// ascending order. All threads of the CTA take part.
__device__ float HeadSum(float of_thread) {
  __shared__ float sums[kThreads];
  const unsigned first = threadIdx.y * blockDim.x;
  sums[first + threadIdx.x] = of_thread;
  __syncthreads();
  float sum = 0;
  for (unsigned unit = 0; unit < blockDim.x; ++unit) sum += sums[first + unit];
  return sum;
}

__device__ float SquareSum(const float (&x)[kVector]) {
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kVector; ++k) sum += x[k] * x[k];
  return sum;
}

__device__ void Normalize(float (&x)[kVector], const float* weights, float scale) {
  float weight[kVector];
  Load(weights, weight);
#pragma unroll
  for (int k = 0; k < kVector; ++k) x[k] = x[k] * scale * weight[k];
}

// The vectors x and y of unit `unit` (in elements), of a head that rotates.
template <bool kIsNeox>
__device__ void RotateUnit(const RopeKvArgs& args, int64_t position, int unit, float (&x)[kVector],
                           float (&y)[kVector]) {
  const float* cos_row = args.cos_sin + position * 2 * args.half + unit;
  float cos[kVector];
  float sin[kVector];
  Load(cos_row, cos);
  Load(cos_row + args.half, sin);
#pragma unroll
  for (int k = 0; k < kVector; ++k) {
    if constexpr (kIsNeox) {
      Rotate(x[k], y[k], cos[k], sin[k]);
    } else if (k < kVector / 2) {
      Rotate(x[2 * k], x[2 * k + 1], cos[k], sin[k]);
    } else {
      Rotate(y[2 * k - kVector], y[2 * k - kVector + 1], cos[k], sin[k]);
    }
  }
}

// CTA (t, g): heads [g, g + 1) * blockDim.y, from first_head on, of token t; threadIdx.x is the
// unit.
template <typename T, typename Cache, bool kIsNeox, bool kHasNorm>
__global__ void __launch_bounds__(kThreads) RopeKvKernel(const RopeKvArgs args) {
  LetKernelBehindStart();
  const int64_t t = blockIdx.x;
  int head = args.first_head + static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  const int num_rotated = args.num_heads + args.num_kv_heads;
  const bool has_head = head < num_rotated + args.num_kv_heads;
  if constexpr (kHasNorm) {
    if (!has_head) head = num_rotated;  // a value: it waits at the barrier and writes nothing
  } else {
    if (!has_head) return;
  }
  const int unit = static_cast<int>(threadIdx.x) * kVector;
  const bool rotates = unit < args.half;
  int at = 2 * unit;
  int partner = at + kVector;
  if (kIsNeox && rotates) {
    at = unit;
    partner = unit + args.half;
  }
  const int64_t column = int64_t{head} * args.head_dim;
  const int64_t width = int64_t{num_rotated + args.num_kv_heads} * args.head_dim;
  const Pending pending(args, column + at);
  const Pending partner_pending(args, column + partner);
  WaitForKernelBefore();

  // What addresses hang on is loaded first.
  const int64_t position = args.half > 0 ? args.positions[t] : 0;
  const int64_t slot = args.slots[t];
  const T* from = static_cast<const T*>(args.rows) + t * width + column;
  const uint4 words = LoadOnce(from + at);
  const uint4 partner_words = LoadOnce(from + partner);
  float x[kVector];
  float y[kVector];
  Unpack<T>(words, x);
  Unpack<T>(partner_words, y);
  pending.Apply(t, x);
  partner_pending.Apply(t, y);

  if constexpr (kHasNorm) {
    const float sum = HeadSum(SquareSum(x) + SquareSum(y));
    if (!has_head) return;
    if (head < num_rotated) {
      const float scale = rsqrtf(sum / static_cast<float>(args.head_dim) + args.norm_eps);
      const float* weights = head < args.num_heads ? args.q_norm : args.k_norm;
      Normalize(x, weights + at, scale);
      Normalize(y, weights + partner, scale);
    }
  }
  if (rotates && head < num_rotated) RotateUnit<kIsNeox>(args, position, unit, x, y);
  WithTarget<T, Cache>(args, t, head, slot, [&](auto* to, float scale) {
    StoreScaled(to + at, x, scale);
    StoreScaled(to + partner, y, scale);
  });
}

// CTA t: token t, whose norms are of all heads of q together, and of all of k. A thread takes the
// same units for the sums of squares and for the rest, so that q may be written where it was read.
template <typename T, typename Cache, bool kIsNeox>
__global__ void __launch_bounds__(kWideThreads) WideNormRopeKvKernel(const RopeKvArgs args) {
  BeginOverlapped();
  const int64_t t = blockIdx.x;
  const int units = args.head_dim / (2 * kVector);
  const int num_rotated = args.num_heads + args.num_kv_heads;
  const int64_t width = int64_t{num_rotated + args.num_kv_heads} * args.head_dim;
  const T* from = static_cast<const T*>(args.rows) + t * width;
  const int64_t position = args.half > 0 ? args.positions[t] : 0;
  const int64_t slot = args.slots[t];
  // Calls use(head, unit, at, partner, x, y) with those of this thread's units of `num_heads`
  // heads.
  const auto for_each_unit = [&](int num_heads, const auto& use) {
    for (int i = static_cast<int>(threadIdx.x); i < num_heads * units; i += kWideThreads) {
      const int head = i / units;
      const int unit = i % units * kVector;
      const bool is_split = kIsNeox && unit < args.half;
      const int at = is_split ? unit : 2 * unit;
      const int partner = is_split ? unit + args.half : at + kVector;
      const int64_t column = int64_t{head} * args.head_dim;
      float x[kVector];
      float y[kVector];
      Unpack<T>(LoadOnce(from + column + at), x);
      Unpack<T>(LoadOnce(from + column + partner), y);
      Pending(args, column + at).Apply(t, x);
      Pending(args, column + partner).Apply(t, y);
      use(head, unit, at, partner, x, y);
    }
  };

  float q_squares = 0;
  float k_squares = 0;
  for_each_unit(num_rotated, [&](int head, int, int, int, const auto& x, const auto& y) {
    (head < args.num_heads ? q_squares : k_squares) += SquareSum(x) + SquareSum(y);
  });
  BlockReducer reducer;
  const auto scale_of = [&](float squares, int num_heads) {
    const auto size = static_cast<float>(num_heads * args.head_dim);
    return rsqrtf(reducer.Sum(squares) / size + args.norm_eps);
  };
  const float q_scale = scale_of(q_squares, args.num_heads);
  const float k_scale = scale_of(k_squares, args.num_kv_heads);
  for_each_unit(num_rotated + args.num_kv_heads, [&](int head, int unit, int at, int partner,
                                                     auto& x, auto& y) {
    if (head < num_rotated) {
      const bool is_q = head < args.num_heads;
      const int of_kind = is_q ? head : head - args.num_heads;
      const float* weights = (is_q ? args.q_norm : args.k_norm) + int64_t{of_kind} * args.head_dim;
      Normalize(x, weights + at, is_q ? q_scale : k_scale);
      Normalize(y, weights + partner, is_q ? q_scale : k_scale);
      if (unit < args.half) RotateUnit<kIsNeox>(args, position, unit, x, y);
    }
    WithTarget<T, Cache>(args, t, head, slot, [&](auto* to, float scale) {
      StoreScaled(to + at, x, scale);
      StoreScaled(to + partner, y, scale);
    });
  });
}

// Any head_dim and rotary_dim that are even, at any address, with zeros behind heads whose rows are
// longer: a pair of elements per thread, which adds up the squares of a norm by itself. Then q is
// not where it is read.
template <typename T, typename Cache>
__global__ void __launch_bounds__(kThreads)
    RopeKvAnyKernel(const RopeKvArgs args, const bool is_neox, const bool has_wide_norm) {
  BeginOverlapped();
  const int64_t t = blockIdx.x;
  const int pairs = args.row_dim / 2;
  const int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  const int head = args.first_head + i / pairs;
  const int pair = i % pairs;
  const int num_rotated = args.num_heads + args.num_kv_heads;
  if (head >= num_rotated + args.num_kv_heads) return;
  const bool rotates = pair < args.half;
  const bool is_split = is_neox && rotates;
  const int at = is_split ? pair : 2 * pair;
  const int partner = is_split ? pair + args.half : at + 1;

  const int64_t slot = args.slots[t];
  if (2 * pair >= args.head_dim) {  // behind the head
    WithTarget<T, Cache>(args, t, head, slot, [&]<typename To>(To* to, float) {
      to[at] = to[partner] = FromFloat<To>(0.0F);
    });
    return;
  }
  const int64_t column = int64_t{head} * args.head_dim;
  const int64_t width = int64_t{num_rotated + args.num_kv_heads} * args.head_dim;
  const T* from = static_cast<const T*>(args.rows) + t * width + column;
  const auto scaled = [&](int64_t d) {
    float x = ToFloat(from[d]);
    if (args.token_scales != nullptr)
      x = x * (args.token_scales[t] * args.token_factor) * args.feature_scales[column + d];
    return args.bias == nullptr ? x : x + args.bias[column + d];
  };
  float x = scaled(at);
  float y = scaled(partner);
  if (args.q_norm != nullptr && head < num_rotated) {
    const bool is_q = head < args.num_heads;
    const int first = is_q ? 0 : args.num_heads;  // of the heads that a wide norm is of
    const int size = args.head_dim * (!has_wide_norm ? 1
                                      : is_q         ? args.num_heads
                                                     : args.num_kv_heads);
    const int64_t begin = has_wide_norm ? int64_t{first} * args.head_dim : column;
    float squares = 0;
    for (int d = 0; d < size; ++d) {
      const float v = scaled(begin - column + d);
      squares += v * v;
    }
    const float scale = rsqrtf(squares / static_cast<float>(size) + args.norm_eps);
    const float* weights =
        (is_q ? args.q_norm : args.k_norm) + (has_wide_norm ? (head - first) * args.head_dim : 0);
    x = x * scale * weights[at];
    y = y * scale * weights[partner];
  }
  if (rotates && head < num_rotated) {
    const float* cos_row = args.cos_sin + int64_t{args.positions[t]} * 2 * args.half + pair;
    Rotate(x, y, cos_row[0], cos_row[args.half]);
  }
  WithTarget<T, Cache>(args, t, head, slot, [&]<typename To>(To* to, float scale) {
    constexpr bool kIsFp8 = std::is_same_v<To, Fp8>;
    to[at] = FromFloat<To>(kIsFp8 ? x * scale : x);
    to[partner] = FromFloat<To>(kIsFp8 ? y * scale : y);
  });
}

bool HasVectors(const RopeKvArgs& args) {
  return args.row_dim == args.head_dim && args.head_dim % (2 * kVector) == 0 &&
         args.half % kVector == 0 && args.q_stride % kVector == 0 && IsAligned(args.rows) &&
         IsAligned(args.q) && IsAligned(args.cache) && IsAligned(args.feature_scales) &&
         IsAligned(args.bias) && IsAligned(args.cos_sin) && IsAligned(args.q_norm) &&
         IsAligned(args.k_norm);
}

template <typename T, typename Cache>
auto KernelOf(bool is_neox, bool has_norm) {
  if (is_neox)
    return has_norm ? RopeKvKernel<T, Cache, true, true> : RopeKvKernel<T, Cache, true, false>;
  return has_norm ? RopeKvKernel<T, Cache, false, true> : RopeKvKernel<T, Cache, false, false>;
}

template <typename T, typename Cache>
void Launch(const RopeKvArgs& args, bool is_neox, bool has_wide_norm, int num_tokens,
            cudaStream_t stream) {
  if (has_wide_norm && HasVectors(args)) {
    LaunchOverlapped(
        is_neox ? WideNormRopeKvKernel<T, Cache, true> : WideNormRopeKvKernel<T, Cache, false>,
        static_cast<unsigned>(num_tokens), kWideThreads, 0, stream, args);
    return;
  }
  const int heads = args.num_heads + 2 * args.num_kv_heads - args.first_head;
  const auto tokens = static_cast<unsigned>(num_tokens);
  const int units = args.head_dim / (2 * kVector);
  if (HasVectors(args) && units <= kThreads) {
    const int per_cta = kThreads / units;
    const dim3 grid(tokens, static_cast<unsigned>((heads + per_cta - 1) / per_cta));
    const dim3 block(static_cast<unsigned>(units), static_cast<unsigned>(per_cta));
    LaunchOverlapped(KernelOf<T, Cache>(is_neox, args.q_norm != nullptr), grid, block, 0, stream,
                     args);
  } else {
    const int64_t pairs = int64_t{heads} * (args.row_dim / 2);
    const dim3 grid(tokens, static_cast<unsigned>((pairs + kThreads - 1) / kThreads));
    LaunchOverlapped(RopeKvAnyKernel<T, Cache>, grid, kThreads, 0, stream, args, is_neox,
                     has_wide_norm);
  }
}

// Whether norms are of all heads together. Of a single head both are the same.
bool HasWideNorm(const QkvRopeKvParams& p) {
  return p.q_norm.num_elements() > p.kv.head_dim || p.k_norm.num_elements() > p.kv.head_dim;
}

RopeKvArgs ArgsOf(const QkvRopeKvParams& p, const PendingScales& pending) {
  const KvCacheView& kv = p.kv;
  const bool has_rope = p.rope.style != RopeStyle::kNone;
  RopeKvArgs args = {.rows = p.workspace.data,
                     .token_scales = pending.token.as<const float>(),
                     .token_factor = pending.factor,
                     .feature_scales = pending.feature,
                     .bias = p.bias.as<const float>(),
                     .q_norm = p.q_norm.as<const float>(),
                     .k_norm = p.k_norm.as<const float>(),
                     .norm_eps = p.norm_eps,
                     .cos_sin = has_rope ? p.rope.cos_sin.as<const float>() : nullptr,
                     .positions = p.batch.positions.as<const int32_t>(),
                     .slots = p.batch.slot_mapping.as<const int64_t>(),
                     .q = p.q.data,
                     .q_stride = p.q_stride != 0 ? p.q_stride : int64_t{p.num_heads} * kv.row(),
                     .cache = kv.Keys(p.layer, 0, 0),
                     .inverse_scales = {1, 1},
                     .num_heads = p.num_heads,
                     .num_kv_heads = kv.num_kv_heads,
                     .head_dim = kv.head_dim,
                     .row_dim = kv.row(),
                     .half = has_rope ? p.rope.rotary_dim / 2 : 0,
                     .block_size = kv.block_size,
                     .block_shift = -1};
  if (kv.scales != nullptr)
    for (int i = 0; i < 2; ++i) args.inverse_scales[i] = 1.0F / kv.scales[2 * p.layer + i];
  for (int shift = 0; shift < 31; ++shift)
    if (kv.block_size == 1 << shift) args.block_shift = shift;
  const bool is_in_place = args.q == args.rows && args.q_stride == p.workspace.shape[1];
  const bool keeps_q = is_in_place && !has_rope && args.bias == nullptr &&
                       args.token_scales == nullptr && args.q_norm == nullptr;
  args.first_head = keeps_q ? p.num_heads : 0;
  return args;
}

}  // namespace

Status ValidateRopeKv(const QkvRopeKvParams& p, const PendingScales& pending) {
  const int64_t num_tokens = p.batch.num_tokens;
  const KvCacheView& kv = p.kv;
  const int64_t width = (p.num_heads + 2 * int64_t{kv.num_kv_heads}) * kv.head_dim;
  const DType dtype = p.workspace.dtype;
  RETURN_IF_ERROR(Expect("workspace", p.workspace, {dtype}, {num_tokens, width}));
  RETURN_IF_ERROR(Expect("q", p.q, {dtype}, {num_tokens, p.num_heads, kv.row()}));
  RETURN_IF_ERROR(ExpectOrEmpty("bias", p.bias, {DType::kF32}, {width}));
  const bool is_wide = HasWideNorm(p);
  RETURN_IF_ERROR(ExpectOrEmpty("q_norm", p.q_norm, {DType::kF32},
                                {int64_t{is_wide ? p.num_heads : 1} * kv.head_dim}));
  RETURN_IF_ERROR(ExpectOrEmpty("k_norm", p.k_norm, {DType::kF32},
                                {int64_t{is_wide ? kv.num_kv_heads : 1} * kv.head_dim}));
  if (p.q_norm.empty() != p.k_norm.empty())
    return InvalidArgument("k_norm: q_norm and k_norm are needed both, or none of them");
  RETURN_IF_ERROR(Expect("batch.slot_mapping", p.batch.slot_mapping, {DType::kI64}, {num_tokens}));
  RETURN_IF_ERROR(ExpectOrEmpty("pending.token", pending.token, {DType::kF32}, {num_tokens}));
  if (!pending.token.empty() && pending.feature == nullptr)
    return InvalidArgument("pending.feature: got no scales beside those of tokens");
  if (p.q_stride != 0 && p.q_stride < int64_t{p.num_heads} * kv.row())
    return InvalidArgument("q_stride: got " + std::to_string(p.q_stride) + ", needed at least " +
                           std::to_string(int64_t{p.num_heads} * kv.row()) +
                           ", the elements of a token");
  if (kv.data == nullptr || (kv.dtype != dtype && kv.dtype != DType::kF8E4M3) ||
      kv.num_kv_heads <= 0 || kv.block_size <= 0 || kv.head_dim <= 0 || kv.head_dim % 8 != 0)
    return InvalidArgument(
        "kv: got " + std::string(DTypeName(kv.dtype)) + " with " + std::to_string(kv.num_kv_heads) +
        " heads of " + std::to_string(kv.head_dim) + " in blocks of " +
        std::to_string(kv.block_size) + ", needed " + std::string(DTypeName(dtype)) +
        " or float8_e4m3fn and a head_dim that is a multiple of 8");
  if (p.layer < 0 || p.layer >= kv.num_layers)
    return InvalidArgument("layer: got " + std::to_string(p.layer) + ", needed [0, " +
                           std::to_string(kv.num_layers) + ")");
  if (p.rope.style == RopeStyle::kNone) return Status::Ok();
  if (p.rope.rotary_dim <= 0 || p.rope.rotary_dim % 2 != 0 || p.rope.rotary_dim > kv.head_dim)
    return InvalidArgument("rope.rotary_dim: got " + std::to_string(p.rope.rotary_dim) +
                           ", needed an even number in [2, " + std::to_string(kv.head_dim) + "]");
  const Shape& table = p.rope.cos_sin.shape;
  RETURN_IF_ERROR(Expect("rope.cos_sin", p.rope.cos_sin, {DType::kF32},
                         {table.rank() == 3 ? table[0] : 0, 2, p.rope.rotary_dim / 2}));
  return Expect("batch.positions", p.batch.positions, {DType::kI32}, {num_tokens});
}

Status RopeKv(const QkvRopeKvParams& p, const PendingScales& pending, CudaStream& stream) {
  RETURN_IF_ERROR(ExpectHalf("workspace", p.workspace.dtype));
  RETURN_IF_ERROR(ValidateRopeKv(p, pending));
  if (p.batch.num_tokens == 0) return Status::Ok();
  const RopeKvArgs args = ArgsOf(p, pending);
  const bool is_any = !HasVectors(args) || args.head_dim / (2 * kVector) > kThreads;
  if (args.q_norm != nullptr && is_any && args.q == args.rows)
    return Unimplemented(
        "q_norm: got heads of " + std::to_string(args.head_dim) + " of which " +
        std::to_string(2 * args.half) +
        " rotate, in place; supported are multiples of 16 at addresses that are multiples of 16");
  const bool is_neox = p.rope.style == RopeStyle::kNeox;
  WithHalf(p.workspace.dtype, [&]<typename T>(std::type_identity<T>) {
    if (p.kv.dtype == DType::kF8E4M3)
      Launch<T, Fp8>(args, is_neox, HasWideNorm(p), p.batch.num_tokens, stream.handle());
    else
      Launch<T, T>(args, is_neox, HasWideNorm(p), p.batch.num_tokens, stream.handle());
  });
  return inflight::cuda::LaunchStatus("rope_kv");
}

}  // namespace inflight::ops::cuda
