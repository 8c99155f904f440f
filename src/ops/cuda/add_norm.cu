// SPDX-License-Identifier: Apache-2.0
// Residual addition and norm: one CTA per row, the row in registers from the first load to the last
// store. Moves 4 * hidden_size * 2 bytes per token (3.5 with y in e4m3); weights stay in L1.
//
// How a row is cut over threads depends on hidden_size alone, so a token's result does not depend
// on its batch.
#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/peers.cuh"
#include "ops/cuda/row.cuh"

namespace inflight::ops::cuda {
namespace {

struct AddNormArgs {
  void* residual;               // [num_tokens, hidden_size]
  const void* delta;            // as residual, or null
  const float* token_scales;    // [num_tokens]; null = delta is not raw, or there is none
  float token_factor;           // of each of them
  const float* feature_scales;  // [hidden_size]
  float delta_factor;           // of a delta that is not raw
  const float* weight;          // [hidden_size]; null = there is no norm
  const float* bias;            // [hidden_size] or null
  float eps;
  bool is_layer_norm;
  void* y;          // [num_tokens, hidden_size]
  float* y_scales;  // [num_tokens]; of y in e4m3
  int64_t hidden_size;
};

// Of a row's delta, this thread's vectors as they are of this rank, become those of all ranks.
template <typename T, int kVectors>
__device__ void AddUpRanks(const Peers& peers, int64_t width, uint4 (&words)[kVectors]) {
  uint32_t& epoch = MailboxOf(peers, peers.rank).epoch[blockIdx.x];
  const uint32_t current = epoch + 1;
#pragma unroll
  for (int j = 0; j < kVectors; ++j)
    if (RowIndex(j) < width)
      SendToAll(peers, words[j], current, blockIdx.x, static_cast<int>(RowIndex(j)) / kVector);
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    if (RowIndex(j) >= width) continue;
    float sum[kVector];
    SumOfAll<T>(peers, words[j], current, blockIdx.x, static_cast<int>(RowIndex(j)) / kVector, sum);
    words[j] = Pack<T>(sum);
  }
  __syncthreads();  // all have read the epoch
  if (threadIdx.x == 0) epoch = current;
}

// Rows of whole vectors, at most kVectors of them per thread. kSums: the delta is of all ranks.
// Without kNorms y is the sum as it was stored.
template <typename T, typename Out, int kVectors, bool kSums, bool kNorms>
__global__ void __launch_bounds__(kMaxRowThreads)
    AddNormKernel(const AddNormArgs args, const Peers peers) {
  LetKernelBehindStart();
  const int64_t t = blockIdx.x;
  const int64_t width = args.hidden_size;
  const bool has_delta = args.delta != nullptr;
  const bool is_raw = args.token_scales != nullptr;

  // What belongs to the model comes from memory while the kernel before ends, the rest from L2.
  float weights[kVectors][kVector] = {};
  float delta_factors[kVectors][kVector];
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int64_t i = RowIndex(j);
    if (i >= width) continue;
    if constexpr (kNorms) Load(args.weight + i, weights[j]);
    if (is_raw) Load(args.feature_scales + i, delta_factors[j]);
  }
  WaitForKernelBefore();

  T* residual = static_cast<T*>(args.residual) + t * width;
  const T* delta = static_cast<const T*>(args.delta) + t * width;
  const float token_scale = is_raw ? args.token_scales[t] * args.token_factor : 1.0F;
  uint4 residual_words[kVectors] = {};
  uint4 delta_words[kVectors] = {};
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int64_t i = RowIndex(j);
    if (i >= width) continue;
    residual_words[j] = LoadOnce(residual + i);
    if (has_delta) delta_words[j] = LoadOnce(delta + i);
  }

  if constexpr (kSums) {
    if (is_raw)
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        float own[kVector];
        Unpack<T>(delta_words[j], own);
#pragma unroll
        for (int k = 0; k < kVector; ++k) own[k] = own[k] * token_scale * delta_factors[j][k];
        delta_words[j] = Pack<T>(own);
      }
    AddUpRanks<T>(peers, width, delta_words);
  }

  float x[kVectors][kVector];
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    Unpack<T>(residual_words[j], x[j]);
    const int64_t i = RowIndex(j);
    if (!has_delta || i >= width) continue;
    float added[kVector];
    Unpack<T>(delta_words[j], added);
#pragma unroll
    for (int k = 0; k < kVector; ++k)
      x[j][k] = is_raw && !kSums ? x[j][k] + added[k] * token_scale * delta_factors[j][k]
                : is_raw         ? x[j][k] + added[k]
                                 : fmaf(added[k], args.delta_factor, x[j][k]);
    Store(residual + i, x[j]);
#pragma unroll
    for (int k = 0; k < kVector; ++k) x[j][k] = Rounded<T>(x[j][k]);
  }

  Out* y = static_cast<Out*>(args.y) + t * width;
  BlockReducer reducer;
  if constexpr (!kNorms) {
    if constexpr (std::is_same_v<Out, Fp8>) {
      StoreFp8Row(x, width, reducer.Max(LargestMagnitude(x, width)), y, args.y_scales + t);
    } else if (args.y != args.residual) {
#pragma unroll
      for (int j = 0; j < kVectors; ++j)
        if (RowIndex(j) < width) Store(y + RowIndex(j), x[j]);
    }
    return;
  }
  const auto size = static_cast<float>(width);
  if (args.is_layer_norm) {
    float sum = 0;  // elements past the end are 0
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
#pragma unroll
      for (int k = 0; k < kVector; ++k) sum += x[j][k];
    const float center = reducer.Sum(sum) / size;
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
      if (RowIndex(j) < width)
#pragma unroll
        for (int k = 0; k < kVector; ++k) x[j][k] -= center;
  }
  // The sum of squares, and beside it the largest product, which e4m3 asks for: one barrier.
  float squares = 0;
  float largest = 0;
#pragma unroll
  for (int j = 0; j < kVectors; ++j)
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      squares += x[j][k] * x[j][k];
      x[j][k] *= weights[j][k];
      largest = fmaxf(largest, fabsf(x[j][k]));
    }
  constexpr bool kIsFp8 = std::is_same_v<Out, Fp8>;
  if constexpr (kIsFp8)
    reducer.SumAndMax(squares, largest);
  else
    squares = reducer.Sum(squares);
  const float scale = rsqrtf(squares / size + args.eps);
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int64_t i = RowIndex(j);
    if (i >= width) continue;
#pragma unroll
    for (int k = 0; k < kVector; ++k) x[j][k] *= scale;
    if (args.bias == nullptr) continue;
    float bias[kVector];
    Load(args.bias + i, bias);
#pragma unroll
    for (int k = 0; k < kVector; ++k) x[j][k] += bias[k];
  }

  if constexpr (kIsFp8) {
    largest = args.bias == nullptr ? largest * scale : reducer.Max(LargestMagnitude(x, width));
    StoreFp8Row(x, width, largest, y, args.y_scales + t);
  } else {
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
      if (RowIndex(j) < width) Store(y + RowIndex(j), x[j]);
  }
}

// Rows of any width at any address: element by element, read again from the cache for each pass.
template <typename T, typename Out>
__global__ void __launch_bounds__(kMaxRowThreads) AddNormAnyKernel(const AddNormArgs args) {
  BeginOverlapped();
  const int64_t t = blockIdx.x;
  const int64_t width = args.hidden_size;
  T* residual = static_cast<T*>(args.residual) + t * width;
  const T* delta = static_cast<const T*>(args.delta) + t * width;
  const float token_scale =
      args.token_scales == nullptr ? 1.0F : args.token_scales[t] * args.token_factor;
  // Each thread reads again only what it wrote itself.
  const auto for_each = [&](const auto& use) {
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) use(i);
  };

  BlockReducer reducer;
  const auto size = static_cast<float>(width);
  float sum = 0;
  for_each([&](int64_t i) {
    if (args.delta != nullptr) {
      float added = ToFloat(delta[i]);
      added *=
          args.token_scales != nullptr ? token_scale * args.feature_scales[i] : args.delta_factor;
      residual[i] = FromFloat<T>(ToFloat(residual[i]) + added);
    }
    sum += ToFloat(residual[i]);
  });
  const float center = args.is_layer_norm ? reducer.Sum(sum) / size : 0.0F;
  float squares = 0;
  for_each([&](int64_t i) {
    const float x = ToFloat(residual[i]) - center;
    squares += x * x;
  });
  const float scale = rsqrtf(reducer.Sum(squares) / size + args.eps);
  const auto normed = [&](int64_t i) {
    if (args.weight == nullptr) return ToFloat(residual[i]);
    const float y = (ToFloat(residual[i]) - center) * (scale * args.weight[i]);
    return args.bias == nullptr ? y : y + args.bias[i];
  };

  Out* y = static_cast<Out*>(args.y) + t * width;
  if constexpr (std::is_same_v<Out, Fp8>) {
    float largest = 0;
    for_each([&](int64_t i) { largest = fmaxf(largest, fabsf(normed(i))); });
    const float row_scale = Fp8Scale(reducer.Max(largest));
    const float inverse = 1.0F / row_scale;
    if (threadIdx.x == 0) args.y_scales[t] = row_scale;
    for_each([&](int64_t i) { y[i] = FromFloat<Fp8>(normed(i) * inverse); });
  } else {
    for_each([&](int64_t i) { y[i] = FromFloat<Out>(normed(i)); });
  }
}

template <typename T, typename Out>
Status Launch(const AddNormArgs& args, const Peers* peers, int64_t num_tokens,
              cudaStream_t stream) {
  constexpr int64_t kOneVector = 512 * kVector;  // elements that 512 threads hold in a vector each
  const auto grid = static_cast<unsigned>(num_tokens);
  const int64_t width = args.hidden_size;
  const bool is_aligned = width % kVector == 0 && IsAligned(args.residual) &&
                          IsAligned(args.delta) && IsAligned(args.y) && IsAligned(args.weight) &&
                          IsAligned(args.bias) && IsAligned(args.feature_scales);
  const auto launch = [&](auto kernel, int per_thread) {
    LaunchOverlapped(kernel, grid, RowThreads(width, kVector, per_thread), 0, stream, args,
                     peers == nullptr ? Peers{} : *peers);
    return Status::Ok();
  };
  const auto launch_vectors = [&]<int kVectors>(std::integral_constant<int, kVectors>) {
    if (args.weight == nullptr)
      return peers == nullptr ? launch(AddNormKernel<T, Out, kVectors, false, false>, kVectors)
                              : launch(AddNormKernel<T, Out, kVectors, true, false>, kVectors);
    return peers == nullptr ? launch(AddNormKernel<T, Out, kVectors, false, true>, kVectors)
                            : launch(AddNormKernel<T, Out, kVectors, true, true>, kVectors);
  };
  if (is_aligned && width <= kOneVector) return launch_vectors(std::integral_constant<int, 1>());
  if (is_aligned && width <= 4 * kOneVector)
    return launch_vectors(std::integral_constant<int, 2>());
  if (peers != nullptr) return InvalidArgument("peers: rows are not aligned, or too wide");
  LaunchOverlapped(AddNormAnyKernel<T, Out>, grid, RowThreads(width, 1, 1), 0, stream, args);
  return Status::Ok();
}

Status Check(const AddNormParams& p) {
  RETURN_IF_ERROR(ExpectHalf("residual", p.residual.dtype));
  RETURN_IF_ERROR(ExpectMatrix("residual", p.residual, {p.residual.dtype}));
  const int64_t num_tokens = p.residual.shape[0];
  const int64_t hidden_size = p.residual.shape[1];
  RETURN_IF_ERROR(ExpectOrEmpty("delta", p.delta, {p.residual.dtype}, p.residual.shape));
  RETURN_IF_ERROR(
      ExpectOrEmpty("delta_scales.token", p.delta_scales.token, {DType::kF32}, {num_tokens}));
  if (!p.delta_scales.token.empty() && p.delta_scales.feature == nullptr)
    return InvalidArgument("delta_scales.feature: got no scales beside those of tokens");
  if (p.norm.kind != NormKind::kNone) {
    RETURN_IF_ERROR(Expect("norm.weight", p.norm.weight, {DType::kF32}, {hidden_size}));
    RETURN_IF_ERROR(ExpectOrEmpty("norm.bias", p.norm.bias, {DType::kF32}, {hidden_size}));
  }
  RETURN_IF_ERROR(Expect("y", p.y, {p.residual.dtype, DType::kF8E4M3}, {num_tokens, hidden_size}));
  if (p.y.dtype != DType::kF8E4M3) return Status::Ok();
  return Expect("y_scales", p.y_scales, {DType::kF32}, {num_tokens});
}

}  // namespace

Status AddNorm(const AddNormParams& p, Stream& stream) {
  RETURN_IF_ERROR(Check(p));
  const int64_t num_tokens = p.residual.shape[0];
  if (num_tokens == 0 || p.residual.shape[1] == 0) return Status::Ok();
  const bool has_norm = p.norm.kind != NormKind::kNone;
  const bool is_raw = !p.delta.empty() && !p.delta_scales.token.empty();
  const AddNormArgs args = {
      .residual = p.residual.data,
      .delta = p.delta.data,
      .token_scales = is_raw ? p.delta_scales.token.as<const float>() : nullptr,
      .token_factor = p.delta_scales.factor * p.delta_factor,
      .feature_scales = p.delta_scales.feature,
      .delta_factor = p.delta_factor,
      .weight = has_norm ? p.norm.weight.as<const float>() : nullptr,
      .bias = has_norm ? p.norm.bias.as<const float>() : nullptr,
      .eps = p.norm.eps,
      .is_layer_norm = p.norm.kind == NormKind::kLayerNorm,
      .y = p.y.data,
      .y_scales = p.y_scales.as<float>(),
      .hidden_size = p.residual.shape[1]};
  const cudaStream_t handle = AsCuda(stream).handle();
  if (p.peers != nullptr && !PeersSumInNorm(*p.peers, num_tokens, args.hidden_size))
    return InvalidArgument("peers: rows are too many or too wide to be added up here");
  const Peers* const peers = p.delta.empty() ? nullptr : p.peers;
  RETURN_IF_ERROR(WithHalf(p.residual.dtype, [&]<typename T>(std::type_identity<T>) {
    return p.y.dtype == DType::kF8E4M3 ? Launch<T, Fp8>(args, peers, num_tokens, handle)
                                       : Launch<T, T>(args, peers, num_tokens, handle);
  }));
  return inflight::cuda::LaunchStatus("add_norm");
}

}  // namespace inflight::ops::cuda
