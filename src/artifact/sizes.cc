// SPDX-License-Identifier: Apache-2.0
#include "artifact/sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace inflight::artifact {

Result<Shape> MakeShape(std::span<const int64_t> dims) {
  if (dims.size() > Shape::kMaxRank)
    return InvalidArgument(fmt::format("shape: {} dimensions, at most {} are supported",
                                       dims.size(), Shape::kMaxRank));
  int64_t product = 1;
  bool overflows = false;
  for (const int64_t dim : dims) {
    if (dim < 0) return InvalidArgument(fmt::format("shape: got {}, negative", dims));
    overflows |= dim != 0 && __builtin_mul_overflow(product, dim, &product);
  }
  if (overflows) return InvalidArgument(fmt::format("shape: got {}, too large", dims));
  switch (dims.size()) {
    case 0:
      return Shape{};
    case 1:
      return Shape{dims[0]};
    case 2:
      return Shape{dims[0], dims[1]};
    case 3:
      return Shape{dims[0], dims[1], dims[2]};
    case 4:
      return Shape{dims[0], dims[1], dims[2], dims[3]};
    default:
      return Shape{dims[0], dims[1], dims[2], dims[3], dims[4]};
  }
}

Result<uint64_t> ByteSize(DType dtype, const Shape& shape) {
  if (HasHalfBytes(dtype)) return BytesOf(dtype, shape.num_elements());
  uint64_t num_bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(shape.num_elements()), SizeOf(dtype),
                             &num_bytes))
    return InvalidArgument(fmt::format("shape: got {}, too large", shape.ToString()));
  return num_bytes;
}

}  // namespace inflight::artifact
