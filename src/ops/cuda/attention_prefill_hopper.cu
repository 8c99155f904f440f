// SPDX-License-Identifier: Apache-2.0
#include "base/status_macros.h"
#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/attention_prefill_hopper.cuh"

namespace inflight::ops::cuda {
namespace {

using prefill_hopper::RunKernel;

template <typename T, bool kIsFp8>
Status Launch(const AttentionArgs& args, int num_items, CudaStream& stream) {
  constexpr int kSharedBytes = prefill_hopper::SharedBytes(kIsFp8);
  static SharedMemoryLimit limit;
  RETURN_IF_ERROR(limit.Raise(RunKernel<T, kIsFp8>, kSharedBytes, stream));
  LaunchOverlapped(RunKernel<T, kIsFp8>, std::min(num_items, stream.num_sms()),
                   prefill_hopper::kThreads, kSharedBytes, stream.handle(), args, num_items);
  return inflight::cuda::LaunchStatus("prefill attention");
}

}  // namespace

// Each multiprocessor has a CTA that takes tiles in turn: with few turns some would end early.
bool PreferHopperPrefill(const AttentionArgs& args, int max_tiles, const CudaStream& stream) {
  constexpr int kMinTurns = 3;
  static const bool has_code = HasBody(RunKernel<__nv_bfloat16, false>);
  return has_code && !stream.is_fixed() && args.sliding.window == 0 && !args.varies() &&
         NumPrefillItems(args, max_tiles) >= kMinTurns * stream.num_sms();
}

Status LaunchHopperPrefill(const AttentionArgs& args, DType kv, int max_tiles, CudaStream& stream) {
  const int num_items = NumPrefillItems(args, max_tiles);
  if (kv == DType::kF8E4M3) return Launch<__half, true>(args, num_items, stream);
  if (kv == DType::kF16) return Launch<__half, false>(args, num_items, stream);
  return Launch<__nv_bfloat16, false>(args, num_items, stream);
}

}  // namespace inflight::ops::cuda
