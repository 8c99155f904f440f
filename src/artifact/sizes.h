// SPDX-License-Identifier: Apache-2.0
// Sizes of tensors that a file describes: arithmetic that cannot overflow.
#pragma once

#include <span>

#include "inflight/status.h"
#include "tensor/tensor_view.h"

namespace inflight::artifact {

// A shape from a file's numbers; kInvalidArgument if one is negative, there are too many, or the
// number of elements does not fit int64.
Result<Shape> MakeShape(std::span<const int64_t> dims);

// Bytes of a dense tensor.
Result<uint64_t> ByteSize(DType dtype, const Shape& shape);

}  // namespace inflight::artifact
