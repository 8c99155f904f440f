// SPDX-License-Identifier: Apache-2.0
// Elements of a tensor that are computed when they are read: of weights that a file holds packed,
// in several tensors or in an order of its own.
#pragma once

#include <cstdint>

namespace inflight::artifact {

// A rectangle of a tensor, both ranges half-open. A vector has one column.
struct TensorBlock {
  int64_t row = 0;
  int64_t num_rows = 0;
  int64_t column = 0;
  int64_t num_columns = 1;
};

class TensorReader {
 public:
  virtual ~TensorReader() = default;

  // Writes the block as elements of the tensor's dtype, row-major and dense. Of int4 its columns
  // begin and end at whole bytes. Thread-safe.
  virtual void Read(const TensorBlock& block, void* out) const = 0;
};

}  // namespace inflight::artifact
