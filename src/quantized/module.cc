// SPDX-License-Identifier: Apache-2.0
#include "quantized/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status_macros.h"
#include "tensor/element.h"

namespace inflight::quantized {

using artifact::StoredTensor;

namespace {

Status WrongShape(const Module& module, std::string_view tensor, const Shape& expected,
                  const Shape& found) {
  return InvalidArgument(fmt::format("{}: expected shape {}, found {}", module.NameOf(tensor),
                                     expected.ToString(), found.ToString()));
}

int64_t CeilOf(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

void SetScales(const StoredTensor& tensor, PackedMatrix& matrix) {
  matrix.scales = tensor.data;
  matrix.scale_dtype = tensor.dtype;
}

}  // namespace

std::string Module::NameOf(std::string_view tensor) const {
  return fmt::format("{}{}{}", name_, separator_, tensor);
}

const StoredTensor* Module::Find(std::string_view tensor) const {
  return tensors_.Find(NameOf(tensor));
}

Result<const StoredTensor*> Module::Get(std::string_view tensor) const {
  const StoredTensor* const found = Find(tensor);
  if (found == nullptr) return InvalidArgument(NameOf(tensor) + ": is missing");
  return found;
}

Result<const StoredTensor*> Module::Get(std::string_view tensor,
                                        std::initializer_list<DType> dtypes,
                                        const Shape& shape) const {
  ASSIGN_OR_RETURN(const StoredTensor* const found, Get(tensor));
  if (std::ranges::find(dtypes, found->dtype) == dtypes.end()) {
    std::string needed;
    for (const DType dtype : dtypes)
      needed += fmt::format("{}{}", needed.empty() ? "" : ", ", DTypeName(dtype));
    return InvalidArgument(
        fmt::format("{}: dtype {}, {} is needed", NameOf(tensor), DTypeName(found->dtype), needed));
  }
  if (found->shape != shape) return WrongShape(*this, tensor, shape, found->shape);
  return found;
}

Result<const StoredTensor*> Module::GetMatrix(std::string_view tensor, DType dtype) const {
  ASSIGN_OR_RETURN(const StoredTensor* const found, Get(tensor));
  if (found->shape.rank() != 2 || found->shape.num_elements() == 0)
    return InvalidArgument(
        fmt::format("{}: shape {}, a matrix is needed", NameOf(tensor), found->shape.ToString()));
  return Get(tensor, {dtype}, found->shape);
}

Result<int64_t> Module::GroupSize(std::string_view field, int64_t size, int64_t in) const {
  if (size == -1) return in;
  if (size > 0 && in % size == 0) return size;
  return InvalidArgument(fmt::format("{}: got {}, which does not divide the {} columns of {}",
                                     field, size, in, NameOf("weight")));
}

Result<std::vector<int32_t>> Module::Groups(std::string_view tensor, int64_t in,
                                            int64_t num_groups) const {
  ASSIGN_OR_RETURN(const StoredTensor* const found, Get(tensor, {DType::kI32}, Shape{in}));
  std::vector<int32_t> groups(static_cast<size_t>(in));
  for (int64_t k = 0; k < in; ++k) {
    const auto group = LoadAs<int32_t>(found->data.data(), k);
    if (group < 0 || group >= num_groups)
      return InvalidArgument(fmt::format("{}: got {} of column {}, there are {} groups",
                                         NameOf(tensor), group, k, num_groups));
    groups[static_cast<size_t>(k)] = group;
  }
  return groups;
}

Status SetScale(const Module& module, std::string_view tensor, PackedMatrix& matrix) {
  ASSIGN_OR_RETURN(const StoredTensor* const found, module.Get(tensor));
  const Shape shape = found->shape.num_elements() == 1 ? found->shape : Shape{1};
  RETURN_IF_ERROR(module.Get(tensor, kScaleDTypes, shape).status());
  SetScales(*found, matrix);
  matrix.group_size = matrix.in_features;
  return Status::Ok();
}

Status SetRowScales(const Module& module, std::string_view tensor, PackedMatrix& matrix) {
  ASSIGN_OR_RETURN(const StoredTensor* const found, module.Get(tensor));
  const Shape shape =
      found->shape.rank() == 1 ? Shape{matrix.out_features} : Shape{matrix.out_features, 1};
  RETURN_IF_ERROR(module.Get(tensor, kScaleDTypes, shape).status());
  SetScales(*found, matrix);
  matrix.row_stride = 1;
  matrix.group_size = matrix.in_features;
  return Status::Ok();
}

Status SetGroupScales(const Module& module, std::string_view tensor, int64_t group_size,
                      PackedMatrix& matrix) {
  matrix.group_size = group_size;
  matrix.num_groups = matrix.in_features / group_size;
  ASSIGN_OR_RETURN(const StoredTensor* const found,
                   module.Get(tensor, kScaleDTypes, Shape{matrix.out_features, matrix.num_groups}));
  SetScales(*found, matrix);
  matrix.row_stride = matrix.num_groups;
  matrix.group_stride = 1;
  return Status::Ok();
}

Status SetBlockScales(const Module& module, std::string_view tensor, int64_t block_rows,
                      int64_t block_columns, PackedMatrix& matrix) {
  matrix.block_rows = block_rows;
  matrix.group_size = block_columns;
  matrix.num_groups = CeilOf(matrix.in_features, block_columns);
  ASSIGN_OR_RETURN(const StoredTensor* const found,
                   module.Get(tensor, kScaleDTypes,
                              Shape{CeilOf(matrix.out_features, block_rows), matrix.num_groups}));
  SetScales(*found, matrix);
  matrix.row_stride = matrix.num_groups;
  matrix.group_stride = 1;
  return Status::Ok();
}

namespace {

constexpr int64_t kStep = 16;       // of sizes of groups (ops::kGroupStep)
constexpr int64_t kFp8Group = 128;  // of FP8 (model::kFp8GroupSize)

bool AreInOrder(const PackedMatrix& matrix) {
  for (size_t k = 0; k < matrix.groups.size(); ++k)
    if (matrix.groups[k] != static_cast<int64_t>(k) / matrix.group_size) return false;
  return true;
}

// The columns, by their groups; null where these have not equally many.
std::shared_ptr<const std::vector<int32_t>> OrderOf(const PackedMatrix& matrix) {
  std::vector<int32_t> order(matrix.groups.size());
  std::iota(order.begin(), order.end(), 0);
  const auto group_of = [&](int32_t k) { return matrix.groups[static_cast<size_t>(k)]; };
  std::ranges::stable_sort(order, {}, group_of);
  for (size_t k = 0; k < order.size(); ++k)
    if (group_of(order[k]) != static_cast<int64_t>(k) / matrix.group_size) return nullptr;
  return std::make_shared<const std::vector<int32_t>>(std::move(order));
}

// Whether scales are of whole rows, or of whole blocks of them.
bool HasRowScales(const PackedMatrix& matrix) {
  return matrix.num_groups == 1 && (matrix.block_rows == 1 || matrix.group_stride == 0);
}

// Of one scale for the tensor, for each row or for each block of rows; the first two in their own
// dtype.
NativeForm RowForm(const Module& module, const PackedMatrix& matrix) {
  NativeForm form;
  form.codes = matrix.Codes(module.NameOf("weight"));
  if (matrix.layout == CodeLayout::kFp8 || matrix.layout == CodeLayout::kInt8) {
    form.codes.data = matrix.codes;
    form.codes.reader = nullptr;
  }
  if (matrix.layout == CodeLayout::kFp8) form.codes.dtype = DType::kF8E4M3;
  form.scales = {.name = module.NameOf("weight_scale"),
                 .dtype = matrix.scale_dtype,
                 .shape = {matrix.out_features},
                 .data = matrix.scales};
  if (matrix.row_stride == 0) {
    form.scales.data = {};
    form.scales.reader = Repeated(matrix.scales);
  }
  if (matrix.block_rows > 1) {
    form.scales = matrix.Scales(form.scales.name);
    form.scales.shape = {matrix.out_features};
  }
  return form;
}

// Of FP8 with a scale for each row, or for blocks of whole groups, whose rows have them each.
std::optional<NativeForm> Fp8Form(const Module& module, const PackedMatrix& matrix) {
  if (HasRowScales(matrix)) return RowForm(module, matrix);
  if (matrix.group_size != kFp8Group || matrix.in_features % kFp8Group != 0) return std::nullopt;
  NativeForm form = RowForm(module, matrix);
  form.scales = matrix.Scales(module.NameOf("weight_scale"));
  form.group_size = kFp8Group;
  return form;
}

}  // namespace

std::optional<NativeForm> NativeFormOf(const Module& module, const PackedMatrix& matrix) {
  if (matrix.layout == CodeLayout::kFp8) return Fp8Form(module, matrix);
  if (matrix.bits == 4 && matrix.in_features % 2 != 0) return std::nullopt;
  PackedMatrix ordered = matrix;
  if (!AreInOrder(matrix)) {
    ordered.order = OrderOf(matrix);
    if (ordered.order == nullptr) return std::nullopt;
  }
  ordered.groups.clear();
  const bool is_symmetric = ordered.IsSymmetric();
  if (HasRowScales(matrix) && is_symmetric) return RowForm(module, ordered);
  if (matrix.group_size % kStep != 0 || matrix.in_features % matrix.group_size != 0)
    return std::nullopt;
  NativeForm form{.codes = ordered.Codes(module.NameOf("weight")),
                  .scales = ordered.Scales(module.NameOf("weight_scale")),
                  .group_size = matrix.group_size,
                  .order = ordered.order};
  if (!is_symmetric) form.offsets = ordered.Offsets(module.NameOf("weight_offset"));
  return form;
}

}  // namespace inflight::quantized
