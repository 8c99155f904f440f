// SPDX-License-Identifier: Apache-2.0
// Descriptions of matrices whose boxes Hopper copies (hopper.cuh, CopyBox).
#pragma once

#include <cuda.h>

#include "inflight/status.h"
#include "tensor/dtype.h"

namespace inflight::ops::cuda {

// A row-major matrix without gaps; what a box has outside it is 0.
struct BoxedMatrix {
  const void* data = nullptr;
  DType dtype = DType::kBF16;  // f16 | bf16 | f32, or bytes: f8e4m3 and i8
  int64_t rows = 0;
  int64_t columns = 0;
  int box_rows = 0;
  int box_columns = 0;  // at most 256
  // Pieces of 16 bytes of a row of 128 are at piece ^ (row % 8), as wgmma reads them.
  bool is_swizzled = true;
};
Status Describe(const BoxedMatrix& matrix, CUtensorMap* map);

}  // namespace inflight::ops::cuda
