// SPDX-License-Identifier: Apache-2.0
// A typed, shaped, dense row-major window on memory owned elsewhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "tensor/dtype.h"

namespace inflight {

// Up to five extents. Shape{} is a scalar with one element.
class Shape {
 public:
  static constexpr int kMaxRank = 5;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);  // at most kMaxRank

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  int64_t num_elements() const;
  std::string ToString() const;  // "[2, 3]"
  friend bool operator==(const Shape& a, const Shape& b) = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

struct TensorView {
  void* data = nullptr;  // device memory of whichever device the operator runs on
  DType dtype = DType::kF32;
  Shape shape;

  bool empty() const { return data == nullptr; }
  int64_t num_elements() const { return shape.num_elements(); }
  size_t num_bytes() const { return BytesOf(dtype, shape.num_elements()); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  std::string ToString() const;  // "bfloat16 [2, 3]"
};

}  // namespace inflight
