// SPDX-License-Identifier: Apache-2.0
// One element of a float tensor, read and written as float32 whatever its dtype.
#pragma once

#include "base/check.h"
#include "tensor/dtype.h"

namespace inflight::ops::reference {

inline float Load(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kF16:
      return static_cast<const Float16*>(data)[i].ToFloat();
    case DType::kBF16:
      return static_cast<const BFloat16*>(data)[i].ToFloat();
    default:
      CHECK(false);
      return 0;
  }
}

inline void Store(void* data, DType dtype, int64_t i, float value) {
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(data)[i] = value;
      return;
    case DType::kF16:
      static_cast<Float16*>(data)[i] = Float16::FromFloat(value);
      return;
    case DType::kBF16:
      static_cast<BFloat16*>(data)[i] = BFloat16::FromFloat(value);
      return;
    default:
      CHECK(false);
  }
}

}  // namespace inflight::ops::reference
