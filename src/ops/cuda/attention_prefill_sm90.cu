// SPDX-License-Identifier: Apache-2.0
#include <cudaTypedefs.h>

#include <algorithm>
#include <limits>

#include "ops/cuda/attention_prefill_sm90.cuh"

namespace inflight::ops::cuda {
namespace {

using prefill_sm90::Args;

// One layer of the cache as rows of head_dim, read in boxes of `box_rows` rows and 64 columns.
Result<CUtensorMap> MapOf(const AttentionArgs& args, const KvCacheView& kv, int box_rows) {
  static const auto encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault,
                                         &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
      entry = nullptr;
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry);
  }();
  if (encode == nullptr) return Unavailable("the driver has no cuTensorMapEncodeTiled");
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(kv.head_dim),
                                 static_cast<cuuint64_t>(kv.num_blocks) * 2 *
                                     static_cast<cuuint64_t>(kv.num_kv_heads) *
                                     static_cast<cuuint64_t>(kv.block_size)};
  if (extents[1] > static_cast<cuuint64_t>(std::numeric_limits<int32_t>::max()))
    return InvalidArgument("kv.num_blocks: a layer has more rows than 32 bits count");
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(kv.head_dim) * 2};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  CUtensorMap map;
  const CUresult result = encode(
      &map,
      kv.dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      2, const_cast<std::byte*>(args.cache), extents, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    return Internal("cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(result)));
  return map;
}

template <int kHeadDim>
Status LaunchOf(const AttentionArgs& attention, const KvCacheView& kv, int max_tiles,
                CudaStream& stream) {
  Args args;
  static_cast<AttentionArgs&>(args) = attention;
  args.num_item_heads = attention.num_kv_heads * attention.heads.tiles_per_kv_head;
  args.max_items = max_tiles * args.num_item_heads;
  args.box_rows = std::min(kv.block_size, prefill_sm90::Layout<kHeadDim>::kKeys);
  ASSIGN_OR_RETURN(const CUtensorMap map, MapOf(attention, kv, args.box_rows));
  return kv.dtype == DType::kF16 ? prefill_sm90::Launch<__half, kHeadDim>(args, map, stream)
                                 : prefill_sm90::Launch<__nv_bfloat16, kHeadDim>(args, map, stream);
}

}  // namespace

bool PrefillSm90CanRun(const KvCacheView& kv) {
  // A build for older GPUs holds these kernels without a body, which the driver translates.
  static const bool has_code = [] {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, prefill_sm90::RunKernel<__half, 128>) ==
               cudaSuccess &&
           attributes.ptxVersion >= 90;
  }();
  return has_code && kv.dtype != DType::kF8E4M3 &&
         (kv.head_dim == 64 || kv.head_dim == 128 || kv.head_dim == 256);
}

Status LaunchPrefillSm90(const AttentionArgs& args, const KvCacheView& kv, int max_tiles,
                         CudaStream& stream) {
  if (kv.head_dim == 64) return LaunchOf<64>(args, kv, max_tiles, stream);
  if (kv.head_dim == 128) return LaunchOf<128>(args, kv, max_tiles, stream);
  return LaunchOf<256>(args, kv, max_tiles, stream);
}

}  // namespace inflight::ops::cuda
