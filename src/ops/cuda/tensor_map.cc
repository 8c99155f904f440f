// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/tensor_map.h"

#include <string>

#include "base/status_macros.h"
#include "tensor/cuda_driver.h"

namespace inflight::ops::cuda {
namespace {

CUtensorMapDataType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::kF16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::kBF16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

}  // namespace

Status Describe(const BoxedMatrix& matrix, CUtensorMap* map) {
  static const auto encode =
      inflight::cuda::DriverFunction<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  RETURN_IF_ERROR(encode.status());
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(matrix.columns),
                                 static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(matrix.columns) * SizeOf(matrix.dtype)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(matrix.box_columns),
                             static_cast<cuuint32_t>(matrix.box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result =
      (*encode)(map, TypeOf(matrix.dtype), 2, const_cast<void*>(matrix.data), extents, strides, box,
                steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                matrix.is_swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return Status::Ok();
  return Internal("cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(result)) +
                  " of " + std::to_string(matrix.rows) + " rows of " +
                  std::to_string(matrix.columns) + " " + std::string(DTypeName(matrix.dtype)));
}

}  // namespace inflight::ops::cuda
