// SPDX-License-Identifier: Apache-2.0
// Checks of what the host can see of a launcher's arguments. kInvalidArgument names the field, what
// it holds and what is needed.
#pragma once

#include <initializer_list>

#include "inflight/status.h"
#include "tensor/tensor_view.h"

namespace inflight::ops::cuda {

inline bool IsHalf(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

Status Expect(const char* field, const TensorView& view, std::initializer_list<DType> dtypes,
              const Shape& shape);
Status ExpectOrEmpty(const char* field, const TensorView& view, std::initializer_list<DType> dtypes,
                     const Shape& shape);
// A matrix [rows, columns] of any extents, in one of the dtypes.
Status ExpectMatrix(const char* field, const TensorView& view, std::initializer_list<DType> dtypes);
Status ExpectHalf(const char* field, DType dtype);  // float16 or bfloat16

// Whether vectors of 16 bytes can be read at `pointer`; true of null.
inline bool IsAligned(const void* pointer, size_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

}  // namespace inflight::ops::cuda
