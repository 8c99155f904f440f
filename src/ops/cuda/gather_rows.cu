// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/cuda/arguments.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/overlap.cuh"

namespace inflight::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBytes = 16;

// CTA (r, c): vectors [c * kThreads, (c + 1) * kThreads) of row r, and those gridDim.y chunks on.
__global__ void __launch_bounds__(kThreads)
    GatherRowsKernel(const uint4* x, const int32_t* rows, int64_t row_vectors, uint4* out) {
  BeginOverlapped();
  const uint4* source = x + rows[blockIdx.x] * row_vectors;
  uint4* target = out + int64_t{blockIdx.x} * row_vectors;
  for (int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x; i < row_vectors;
       i += int64_t{gridDim.y} * kThreads)
    target[i] = source[i];
}

}  // namespace

Status GatherRows(const void* x, const int32_t* rows, int64_t num_rows, int64_t row_bytes,
                  void* out, CudaStream& stream) {
  if (row_bytes < 0 || row_bytes % kBytes != 0 || !IsAligned(x) || !IsAligned(out))
    return InvalidArgument("rows: got " + std::to_string(row_bytes) +
                           " bytes each, needed a multiple of 16 at aligned addresses");
  if (num_rows == 0 || row_bytes == 0) return Status::Ok();
  const int64_t row_vectors = row_bytes / kBytes;
  const int64_t chunks = std::min<int64_t>((row_vectors + kThreads - 1) / kThreads, 1024);
  const dim3 grid(static_cast<unsigned>(num_rows), static_cast<unsigned>(chunks));
  LaunchOverlapped(GatherRowsKernel, grid, kThreads, 0, stream.handle(),
                   static_cast<const uint4*>(x), rows, row_vectors, static_cast<uint4*>(out));
  return inflight::cuda::LaunchStatus("gather_rows");
}

}  // namespace inflight::ops::cuda
