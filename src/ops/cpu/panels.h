// SPDX-License-Identifier: Apache-2.0
// What products with packed weights have in common: the kernel of a dtype's panels, and activations
// as that kernel reads them.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/launch.h"
#include "ops/weight.h"

namespace inflight::ops::cpu {

using PanelKernel = void (*)(const PanelArgs&);
PanelKernel PanelKernelOf(const KernelSet& kernels, DType dtype);

// Bytes of 64 rows.
size_t PanelBytes(const Weight& weight);

Status ExpectPacked(const char* field, const Weight& weight);

// Activations in int8, placed in the scratch as LinearScratchBytes counts it. Of float weights
// nothing.
struct RoundedRows {
  RoundedRows(const Weight& weight, int64_t num_rows, const TensorView& scratch);

  int64_t stride = 0;
  int8_t* values = nullptr;  // [num_rows][stride]
  float* scales = nullptr;   // [num_rows]
  int32_t* sums = nullptr;   // [num_rows]

  // Fills them: of row r from row_of(r), a row of `element`s.
  template <typename Rows>
  void Fill(const KernelSet& kernels, const Rows& row_of, Element element, int64_t num_rows,
            int64_t size, CpuPool& pool) const {
    pool.ParallelFor(
        num_rows,
        [&](int64_t row) {
          kernels.quantize({.x = row_of(row),
                            .x_element = element,
                            .size = size,
                            .values = values + row * stride,
                            .scale = scales + row,
                            .sum = sums + row});
        },
        ThreadsFor(2 * num_rows * size));
  }
};

}  // namespace inflight::ops::cpu
