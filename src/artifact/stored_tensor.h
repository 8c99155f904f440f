// SPDX-License-Identifier: Apache-2.0
// One tensor of a weight file, whatever the file's format.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tensor/tensor_view.h"

namespace inflight::artifact {

struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> data;  // dense, row-major, little-endian; at any address
};

}  // namespace inflight::artifact
