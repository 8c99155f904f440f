// SPDX-License-Identifier: Apache-2.0
// One tensor of a weight file, whatever the file's format.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "artifact/block_codec.h"
#include "artifact/tensor_reader.h"
#include "tensor/tensor_view.h"

namespace inflight::artifact {

struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;  // of packed elements float32, which they are read as
  Shape shape;
  std::span<const std::byte> data;    // dense, row-major, little-endian; at any address
  const BlockCodec* codec = nullptr;  // of packed elements; null: each is one of `dtype`
  std::shared_ptr<const TensorReader> reader =
      nullptr;  // set: elements come from it, not of `data`
};

}  // namespace inflight::artifact
