// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace inflight::ops::cuda {
namespace {

std::string Names(std::initializer_list<DType> dtypes) {
  std::string names;
  for (const DType dtype : dtypes) {
    if (!names.empty()) names += " or ";
    names += DTypeName(dtype);
  }
  return names;
}

std::string Got(const TensorView& view) { return view.empty() ? "no tensor" : view.ToString(); }

}  // namespace

Status Expect(const char* field, const TensorView& view, std::initializer_list<DType> dtypes,
              const Shape& shape) {
  const bool is_present = !view.empty() || shape.num_elements() == 0;
  if (is_present && std::ranges::count(dtypes, view.dtype) > 0 && view.shape == shape)
    return Status::Ok();
  return InvalidArgument(
      fmt::format("{}: got {}, needed {} {}", field, Got(view), Names(dtypes), shape.ToString()));
}

Status ExpectOrEmpty(const char* field, const TensorView& view, std::initializer_list<DType> dtypes,
                     const Shape& shape) {
  return view.empty() ? Status::Ok() : Expect(field, view, dtypes, shape);
}

Status ExpectMatrix(const char* field, const TensorView& view,
                    std::initializer_list<DType> dtypes) {
  if (view.shape.rank() == 2 && std::ranges::count(dtypes, view.dtype) > 0 &&
      (!view.empty() || view.num_elements() == 0))
    return Status::Ok();
  return InvalidArgument(
      fmt::format("{}: got {}, needed {} [rows, columns]", field, Got(view), Names(dtypes)));
}

Status ExpectHalf(const char* field, DType dtype) {
  if (IsHalf(dtype)) return Status::Ok();
  return Unimplemented(fmt::format(
      "{}: got {}, CUDA kernels compute in float16 or bfloat16; convert the model to one of them",
      field, DTypeName(dtype)));
}

}  // namespace inflight::ops::cuda
