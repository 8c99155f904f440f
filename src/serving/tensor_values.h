// SPDX-License-Identifier: Apache-2.0
// Elements of tensors as numbers of C++, for models that look into them.
#pragma once

#include <cstring>
#include <string_view>
#include <vector>

#include "serving/request.h"

namespace inflight::serving {

// The elements of a tensor whose datatype has T's size. Bytes that fill no element are left out.
template <typename T>
std::vector<T> ValuesOf(const Tensor& tensor) {
  std::vector<T> values(tensor.data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.data.data(), values.size() * sizeof(T));
  return values;
}

// The first element of an input that may be absent.
template <typename T>
T FirstOr(const Request& request, std::string_view input, T otherwise) {
  const Tensor* tensor = request.FindInput(input);
  if (tensor == nullptr || tensor->data.size() < sizeof(T)) return otherwise;
  T value;
  std::memcpy(&value, tensor->data.data(), sizeof(value));
  return value;
}

}  // namespace inflight::serving
