// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/shared_memory_limit.h"
#include "ops/cuda/streamed.cuh"
#include "ops/cuda/streamed.h"
#include "ops/cuda/tensor_map.h"
#include "tensor/cuda_status.h"

namespace inflight::ops::cuda {
namespace {

using streamed::Layout;

constexpr int64_t kMaxTokens = 64;

// A matrix [rows, k] as boxes of 128 bytes of k.
Status DescribeRows(const void* data, const GemmParams& p, int64_t rows, int box_rows,
                    CUtensorMap* map) {
  return Describe({.data = data,
                   .dtype = p.dtype,
                   .rows = rows,
                   .columns = p.k,
                   .box_rows = box_rows,
                   .box_columns = streamed::kBoxBytes / static_cast<int>(SizeOf(p.dtype))},
                  map);
}

template <typename T, int kTokens>
Status Launch(const GemmParams& p, streamed::Args args, CudaStream& stream) {
  using L = Layout<kTokens>;
  static SharedMemoryLimit limit;
  static_assert(L::kSharedBytes <= 113 * 1024, "two CTAs share a multiprocessor");
  RETURN_IF_ERROR(limit.Raise(streamed::Kernel<T, kTokens>, L::kSharedBytes, stream));
  CUtensorMap w_map;
  CUtensorMap x_map;
  RETURN_IF_ERROR(DescribeRows(p.w, p, p.n, streamed::kRows, &w_map));
  RETURN_IF_ERROR(DescribeRows(p.x, p, p.m, kTokens, &x_map));
  LaunchAttributes attributes(CanOverlap(), static_cast<unsigned>(args.num_splits));
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>((p.n + streamed::kRows - 1) / streamed::kRows * args.num_splits));
  config.blockDim = dim3(streamed::kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(L::kSharedBytes);
  config.stream = stream.handle();
  config.attrs = attributes.list;
  config.numAttrs = attributes.count;
  return inflight::cuda::ToStatus(
      cudaLaunchKernelEx(&config, streamed::Kernel<T, kTokens>, w_map, x_map, args), "streamed");
}

template <typename T>
Status LaunchOf(const GemmParams& p, const streamed::Args& args, CudaStream& stream) {
  return p.m <= 32 ? Launch<T, 32>(p, args, stream) : Launch<T, 64>(p, args, stream);
}

}  // namespace

bool StreamedCanRun(const GemmParams& params) {
  static const bool has_code = HasBody(streamed::Kernel<__nv_bfloat16, 32>);
  return has_code && params.m <= kMaxTokens && params.n < (int64_t{1} << 30) &&
         params.k < (int64_t{1} << 30) && IsAligned(params.x) && IsAligned(params.w);
}

// Measured on an H200 with the shapes of an 8B model, in whole steps: FP8 products of more than 32
// tokens and heads of more than 32 are the library's, which reads x less often.
bool PreferStreamed(const GemmParams& params, const CudaStream& stream) {
  constexpr int64_t kFewTokens = 32;
  constexpr int64_t kWide = 65536;
  if (stream.is_fixed() || params.m < 9 || !StreamedCanRun(params)) return false;
  if (params.m <= kFewTokens) return true;
  return params.dtype != DType::kF8E4M3 && params.n < kWide;
}

// As many as give each multiprocessor about one and a half CTAs, with 8 boxes or more each.
int StreamedSplits(const GemmParams& params, const CudaStream& stream) {
  const int64_t tiles = (params.n + streamed::kRows - 1) / streamed::kRows;
  const int64_t steps = params.k * static_cast<int64_t>(SizeOf(params.dtype)) / streamed::kBoxBytes;
  const int64_t splits = std::min(stream.num_sms() * 3 / 2 / tiles, steps / 8);
  return static_cast<int>(std::clamp<int64_t>(splits, 1, streamed::kMaxSplits));
}

Status Streamed(const GemmParams& p, int num_splits, CudaStream& stream) {
  if (p.m == 0 || p.n == 0) return Status::Ok();
  if (!StreamedCanRun(p) || num_splits < 1 || num_splits > streamed::kMaxSplits)
    return Unimplemented("no streamed product of " + std::to_string(p.m) + " tokens in " +
                         std::to_string(num_splits) + " parts for this GPU (sm_90a alone has it)");
  const int64_t k_bytes = p.k * static_cast<int64_t>(SizeOf(p.dtype));
  const ProductOutput out = OutputOf(p);
  const streamed::Args args = {
      .num_steps = static_cast<int>((k_bytes + streamed::kBoxBytes - 1) / streamed::kBoxBytes),
      .num_splits = num_splits,
      .m = static_cast<int>(p.m),
      // The kernel before may be the one that widens integers into the workspace.
      .copy_w_early = p.w != stream.workspace().weights,
      .has_vectors = out.stride % 4 == 0 && IsAligned(p.y),
      .out = out};
  switch (p.dtype) {
    case DType::kF16:
      return LaunchOf<__half>(p, args, stream);
    case DType::kF8E4M3:
      return LaunchOf<__nv_fp8_e4m3>(p, args, stream);
    default:
      return LaunchOf<__nv_bfloat16>(p, args, stream);
  }
}

Status Streamed(const GemmParams& params, CudaStream& stream) {
  return Streamed(params, StreamedSplits(params, stream), stream);
}

}  // namespace inflight::ops::cuda
