// SPDX-License-Identifier: Apache-2.0
// Single elements of a request's inputs, for models that look into them.
#pragma once

#include <cstring>
#include <string_view>

#include "serving/core/request.h"

namespace inflight::serving {

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
