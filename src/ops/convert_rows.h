// SPDX-License-Identifier: Apache-2.0
// Weights in the dtype of their file into the form that an engine stores, on a GPU while they are
// loaded.
#pragma once

#include <cstdint>

#include "inflight/status.h"
#include "tensor/dtype.h"

namespace inflight::ops {

// Every value is rounded to the model's dtype first. Quantised rows are then:
//
//   i8      s = max_k |x[k]| / 128              y[k] = x[k] / s, rounded half away from zero,
//                                               clipped to [-128, 127]; s is rounded to the
//                                               model's dtype after that
//   i4      s = max_k |x[k]| / 8                likewise, clipped to [-8, 7]; of even width
//   f8e4m3  s = max(max_k |x[k]|, 1/512) / 448  y[k] = e4m3(x[k] / s), to nearest even
//
// A row of zeros gives zeros; one with infinity or NaN gives zeros and the scale NaN. The results
// are those of builder/quantize.h to the bit.
struct ConvertRowsParams {
  const void* x = nullptr;       // [num_rows, width] device memory
  DType x_dtype = DType::kF32;   // f32 | f16 | bf16
  void* y = nullptr;             // [num_rows, width]
  DType y_dtype = DType::kBF16;  // the model's; i8 | i4 | f8e4m3
  DType dtype = DType::kBF16;    // the model's: f32 | f16 | bf16
  float* scales = nullptr;       // [num_rows], of i8, i4 and f8e4m3
  int64_t num_rows = 0;
  int64_t width = 0;
};

// Enqueues on a cudaStream_t.
Status ConvertRowsOnGpu(const ConvertRowsParams& params, void* stream);

}  // namespace inflight::ops
