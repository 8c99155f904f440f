// SPDX-License-Identifier: Apache-2.0
// A rank's columns among those of all, float32: all[r, first + c] = own[r, c], and 0 elsewhere.
#pragma once

#include <cstdint>

#include "ops/cuda/cuda_stream.h"

namespace inflight::ops::cuda {

struct PlacedColumns {
  const float* own = nullptr;  // [num_rows, width]
  float* all = nullptr;        // [num_rows, row_width]
  int64_t num_rows = 0;
  int64_t width = 0;
  int64_t row_width = 0;  // what of `own` lies behind it is left out
  int64_t first = 0;
};

// Enqueues it.
Status PlaceColumns(const PlacedColumns& columns, CudaStream& stream);

}  // namespace inflight::ops::cuda
