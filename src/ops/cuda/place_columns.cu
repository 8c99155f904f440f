// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/cuda/overlap.cuh"
#include "ops/cuda/place_columns.h"
#include "tensor/cuda_status.h"

namespace inflight::ops::cuda {
namespace {

using inflight::cuda::LaunchStatus;

constexpr int kPlaceThreads = 256;
constexpr int kPlaceCtasPerRow = 32;  // at most

__global__ void __launch_bounds__(kPlaceThreads) PlaceColumnsKernel(const PlacedColumns c) {
  WaitForKernelBefore();
  const int64_t row = blockIdx.y;
  const float* const own = c.own + row * c.width;
  float* const all = c.all + row * c.row_width;
  const int64_t step = int64_t{gridDim.x} * kPlaceThreads;
  for (int64_t i = int64_t{blockIdx.x} * kPlaceThreads + threadIdx.x; i < c.row_width; i += step) {
    const int64_t column = i - c.first;
    all[i] = column >= 0 && column < c.width ? own[column] : 0.0F;
  }
}

}  // namespace

Status PlaceColumns(const PlacedColumns& columns, CudaStream& stream) {
  if (columns.num_rows == 0 || columns.row_width == 0) return Status::Ok();
  const int64_t needed = (columns.row_width + kPlaceThreads - 1) / kPlaceThreads;
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(needed, kPlaceCtasPerRow)),
                  static_cast<unsigned>(columns.num_rows));
  PlaceColumnsKernel<<<grid, kPlaceThreads, 0, stream.handle()>>>(columns);
  return LaunchStatus("place_columns");
}

}  // namespace inflight::ops::cuda
