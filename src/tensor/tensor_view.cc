// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor_view.h"

#include <algorithm>

#include "base/check.h"

namespace inflight {

Shape::Shape(std::initializer_list<int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  CHECK_LE(rank_, kMaxRank);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

int64_t Shape::num_elements() const {
  int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= dims_[static_cast<size_t>(i)];
  return n;
}

std::string Shape::ToString() const {
  std::string out = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(dims_[static_cast<size_t>(i)]);
  }
  return out + "]";
}

std::string TensorView::ToString() const {
  return std::string(DTypeName(dtype)) + " " + shape.ToString();
}

}  // namespace inflight
