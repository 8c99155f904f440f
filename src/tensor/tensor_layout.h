// SPDX-License-Identifier: Apache-2.0
// Tensors that share one piece of memory: each begins at a multiple of 64 bytes behind the last.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/tensor_view.h"

namespace inflight {

class TensorLayout {
 public:
  // A null `base` only measures: views of null.
  explicit TensorLayout(std::byte* base) : base_(base) {}

  TensorView Place(DType dtype, Shape shape) {
    constexpr uint64_t kAlignment = 64;
    const TensorView view{base_ == nullptr ? nullptr : base_ + num_bytes_, dtype, shape};
    num_bytes_ += (view.num_bytes() + kAlignment - 1) / kAlignment * kAlignment;
    return view;
  }
  uint64_t num_bytes() const { return num_bytes_; }  // of all

 private:
  std::byte* const base_;
  uint64_t num_bytes_ = 0;
};

}  // namespace inflight
