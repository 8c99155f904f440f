// SPDX-License-Identifier: Apache-2.0
// Elements of tensors as numbers of C++, for models that look into them.
#pragma once

#include <cstring>
#include <vector>

#include "serving/tensors/tensor.h"

namespace inflight::serving {

// The elements of a tensor whose datatype has T's size. Bytes that fill no element are left out.
template <typename T>
std::vector<T> ValuesOf(const Tensor& tensor) {
  std::vector<T> values(tensor.data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.data.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace inflight::serving
