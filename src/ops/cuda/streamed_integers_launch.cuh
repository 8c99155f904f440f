// SPDX-License-Identifier: Apache-2.0
// Launches of streamed_integers.cuh for one kind of codes, in a file of its own each, which
// compile side by side.
#pragma once

#include "base/status_macros.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/shared_memory_limit.h"
#include "ops/cuda/streamed_integers.cuh"
#include "ops/cuda/streamed_integers_args.h"
#include "tensor/cuda_status.h"

namespace inflight::ops::cuda::streamed_integers {

template <typename T, Codes kCodes, int kTokens, int kGroups>
Status Launch(const Maps& maps, const Args& args, const LaunchPlan& plan, CudaStream& stream) {
  const auto kernel = Kernel<T, kCodes, kTokens, kGroups>;
  static SharedMemoryLimit limit;
  RETURN_IF_ERROR(limit.Raise(
      kernel, static_cast<int>(stream.gpu().max_shared_bytes_per_block) - 1024, stream));
  LaunchAttributes attributes(CanOverlap(), static_cast<unsigned>(args.num_splits));
  const int64_t tiles = (args.out.n + kRows - 1) / kRows;
  const cudaLaunchConfig_t config = {
      .gridDim = dim3(static_cast<unsigned>(tiles * args.num_splits),
                      static_cast<unsigned>((args.m + kTokens - 1) / kTokens)),
      .blockDim = dim3(kThreads),
      .dynamicSmemBytes = static_cast<size_t>(plan.shared_bytes),
      .stream = stream.handle(),
      .attrs = attributes.list,
      .numAttrs = attributes.count};
  return inflight::cuda::ToStatus(cudaLaunchKernelEx(&config, kernel, maps, args),
                                  "streamed_integers");
}

template <typename T, Codes kCodes, int kTokens>
Status LaunchTokens(const Maps& maps, const Args& args, const LaunchPlan& plan,
                    CudaStream& stream) {
  if constexpr (kCodes == Codes::kFp8) {  // in groups of whole slabs
    return Launch<T, kCodes, kTokens, 1>(maps, args, plan, stream);
  } else {
    if (args.scales != nullptr) return Launch<T, kCodes, kTokens, 0>(maps, args, plan, stream);
    if (args.slab_groups == 1) return Launch<T, kCodes, kTokens, 1>(maps, args, plan, stream);
    if (args.slab_groups == 2) return Launch<T, kCodes, kTokens, 2>(maps, args, plan, stream);
    return Launch<T, kCodes, kTokens, 4>(maps, args, plan, stream);
  }
}

template <typename T, Codes kCodes>
Status LaunchOf(const Maps& maps, const Args& args, const LaunchPlan& plan, CudaStream& stream) {
  switch (plan.tokens) {
    case 16:
      return LaunchTokens<T, kCodes, 16>(maps, args, plan, stream);
    case 32:
      return LaunchTokens<T, kCodes, 32>(maps, args, plan, stream);
    case 64:
      return LaunchTokens<T, kCodes, 64>(maps, args, plan, stream);
    default:
      return LaunchTokens<T, kCodes, 128>(maps, args, plan, stream);
  }
}

template <Codes kCodes>
Status LaunchBits(const Maps& maps, const Args& args, const LaunchPlan& plan, CudaStream& stream) {
  return plan.dtype == DType::kF16 ? LaunchOf<__half, kCodes>(maps, args, plan, stream)
                                   : LaunchOf<__nv_bfloat16, kCodes>(maps, args, plan, stream);
}

}  // namespace inflight::ops::cuda::streamed_integers
