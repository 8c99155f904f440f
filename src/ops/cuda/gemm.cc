// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/skinny.h"
#include "ops/cuda/streamed.h"

namespace inflight::ops::cuda {
namespace {

Status Validate(const GemmParams& p) {
  const bool dtype_ok =
      p.dtype == DType::kF16 || p.dtype == DType::kBF16 || p.dtype == DType::kF8E4M3;
  const bool y_ok = p.y_dtype == DType::kF32 ||
                    (p.dtype == DType::kF8E4M3 ? IsHalf(p.y_dtype) : p.y_dtype == p.dtype);
  if (!dtype_ok || !y_ok)
    return InvalidArgument(fmt::format(
        "y: got {} from {} operands, needed float16 or bfloat16 from itself or from float8, or "
        "float32",
        DTypeName(p.y_dtype), DTypeName(p.dtype)));
  const auto element = static_cast<int64_t>(SizeOf(p.dtype));
  if (p.k <= 0 || p.k * element % 16 != 0)
    return InvalidArgument(fmt::format("k: got {}, needed a multiple of {}", p.k, 16 / element));
  if (p.y_stride != 0 && p.y_stride < p.n)
    return InvalidArgument(
        fmt::format("y_stride: got {}, needed 0 or at least {}", p.y_stride, p.n));
  if (IsAligned(p.x) && IsAligned(p.w)) return Status::Ok();
  return InvalidArgument(
      fmt::format("x and w: got addresses {} and {}, needed multiples of 16", p.x, p.w));
}

}  // namespace

Status Gemm(const GemmParams& params, CudaStream& stream) {
  if (params.m == 0 || params.n == 0) return Status::Ok();
  RETURN_IF_ERROR(Validate(params));
  if (PreferStreamed(params, stream)) return Streamed(params, stream);
  if (!stream.is_fixed() && PreferSkinny(params)) return SkinnyMma(params, stream);
  return GemmCublasLt(params, stream);
}

}  // namespace inflight::ops::cuda
