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

// Rows of one call of it; where these are more than kMaxRows, it takes parts of k too.
int64_t PanelRows(const KernelSet& kernels, DType dtype);

// Bytes of 64 rows.
size_t PanelBytes(const Weight& weight);

Status ExpectPacked(const char* field, const Weight& weight);

// Activations in int8, placed in the scratch as LinearScratchBytes counts it. Of float weights
// nothing.
struct RoundedRows {
  RoundedRows(const Weight& weight, int64_t num_rows, const TensorView& scratch);

  int64_t stride = 0;
  int64_t num_groups = 0;          // of the weight; 1 without groups
  const int32_t* order = nullptr;  // of the weight
  int8_t* values = nullptr;        // [num_rows][stride]
  float* scales = nullptr;         // [num_rows][num_groups]
  int32_t* sums = nullptr;         // [num_rows][num_groups]

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
                            .num_groups = num_groups,
                            .order = order,
                            .values = values + row * stride,
                            .scales = scales + row * num_groups,
                            .sums = sums + row * num_groups});
        },
        ThreadsFor(2 * num_rows * size));
  }
};

// What a kernel call with a quantised weight reads beside rows and panel: of the panel that begins
// at `feature`, scales and offsets; of rows that are rounded, theirs. `args` points into it. Of
// float weights nothing.
class ScaledOperands {
 public:
  ScaledOperands(const Weight& weight, int64_t feature, PanelArgs& args);

  // The call's row r is row `row` of `rounded`.
  void SetRow(int r, const RoundedRows& rounded, int64_t row) {
    scales_[r] = rounded.scales + row * rounded.num_groups;
    sums_[r] = rounded.sums + row * rounded.num_groups;
  }

 private:
  const float* scales_[kMaxPanelRows];
  const int32_t* sums_[kMaxPanelRows];
};

}  // namespace inflight::ops::cpu
