// SPDX-License-Identifier: Apache-2.0
// What the launchers share: from tensors to the plain arguments of the kernels, and how many
// threads a piece of work is worth. Not for translation units of an instruction set.
#pragma once

#include "base/check.h"
#include "ops/cpu/kernels.h"
#include "ops/linear.h"

namespace inflight::ops::cpu {

inline Element ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Element::kF32;
    case DType::kF16:
      return Element::kF16;
    case DType::kBF16:
      return Element::kBf16;
    default:
      CHECK(false);
      return Element::kF32;
  }
}

inline Function FunctionOf(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kNone:
      return Function::kNone;
    case ActivationKind::kRelu:
      return Function::kRelu;
    case ActivationKind::kGelu:
      return Function::kGelu;
    case ActivationKind::kGeluTanh:
      return Function::kGeluTanh;
    case ActivationKind::kSilu:
      return Function::kSilu;
  }
  return Function::kNone;
}

// Row `row` of a [rows, width] tensor.
inline void* RowOf(const TensorView& view, int64_t row) {
  const auto stride = static_cast<size_t>(view.shape[1]) * SizeOf(view.dtype);
  return view.as<std::byte>() + static_cast<size_t>(row) * stride;
}

// For CpuPool::ParallelFor: 1 where the work (multiplications, more or less) lasts less than the
// few microseconds that waking a worker may cost, else 0 = all.
inline int ThreadsFor(int64_t work) { return work < 64 * 1024 ? 1 : 0; }

}  // namespace inflight::ops::cpu
