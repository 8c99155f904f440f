// SPDX-License-Identifier: Apache-2.0
#include "quantized/wider_form.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "tensor/element.h"

namespace inflight::quantized {
namespace {

using artifact::StoredTensor;
using artifact::TensorBlock;

constexpr int64_t kGroupUnit = 16;  // ops::kGroupStep

// A block of a tensor that is stored plainly or computed, dense.
void ReadBlock(const StoredTensor& tensor, const TensorBlock& block, std::byte* out) {
  if (tensor.reader != nullptr) return tensor.reader->Read(block, out);
  const int64_t width = tensor.shape.rank() == 1 ? 1 : tensor.shape[1];
  const size_t num_bytes = BytesOf(tensor.dtype, block.num_columns);
  for (int64_t row = block.row; row < block.row + block.num_rows; ++row, out += num_bytes)
    std::memcpy(out, tensor.data.data() + BytesOf(tensor.dtype, row * width + block.column),
                num_bytes);
}

class Int8OfInt4Reader final : public artifact::TensorReader {
 public:
  explicit Int8OfInt4Reader(StoredTensor codes) : codes_(std::move(codes)) {}

  void Read(const TensorBlock& block, void* out) const override {
    // From whole bytes to whole bytes.
    const int64_t skipped = block.column % 2;
    TensorBlock whole = block;
    whole.column -= skipped;
    whole.num_columns = (block.num_columns + skipped + 1) / 2 * 2;
    std::vector<std::byte> pairs(BytesOf(DType::kI4, whole.num_rows * whole.num_columns));
    ReadBlock(codes_, whole, pairs.data());
    auto* to = static_cast<int8_t*>(out);
    for (int64_t row = 0; row < whole.num_rows; ++row)
      for (int64_t j = 0; j < block.num_columns; ++j)
        *to++ = static_cast<int8_t>(LoadInt4(pairs.data(), row * whole.num_columns + skipped + j));
  }

 private:
  StoredTensor codes_;
};

// Each column of a matrix `factor` times, as float32.
class RepeatedColumnsReader final : public artifact::TensorReader {
 public:
  RepeatedColumnsReader(StoredTensor values, int64_t factor)
      : values_(std::move(values)), factor_(factor) {}

  void Read(const TensorBlock& block, void* out) const override {
    const int64_t first = block.column / factor_;
    const int64_t num_columns = (block.column + block.num_columns - 1) / factor_ - first + 1;
    std::vector<std::byte> values(BytesOf(values_.dtype, block.num_rows * num_columns));
    ReadBlock(values_, {block.row, block.num_rows, first, num_columns}, values.data());
    auto* to = static_cast<float*>(out);
    for (int64_t row = 0; row < block.num_rows; ++row)
      for (int64_t j = block.column; j < block.column + block.num_columns; ++j)
        *to++ = LoadFloat(values.data(), values_.dtype, row * num_columns + j / factor_ - first);
  }

 private:
  StoredTensor values_;
  int64_t factor_;
};

class ZeroReader final : public artifact::TensorReader {
 public:
  void Read(const TensorBlock& block, void* out) const override {
    std::fill_n(static_cast<float*>(out), block.num_rows * block.num_columns, 0.0F);
  }
};

StoredTensor Made(const StoredTensor& from, DType dtype, const Shape& shape,
                  std::shared_ptr<const artifact::TensorReader> reader) {
  return {
      .name = from.name, .dtype = dtype, .shape = shape, .data = {}, .reader = std::move(reader)};
}

}  // namespace

FormKind KindOf(const NativeForm& form) {
  return {.codes = form.codes.dtype,
          .group_size = form.group_size,
          .has_offsets = form.offsets.has_value(),
          .blocks = form.blocks};
}

std::optional<FormKind> CommonKind(const FormKind& a, const FormKind& b, int64_t in_features) {
  if (a == b) return a;
  const auto is_float = [](const FormKind& kind) {
    return kind.codes == DType::kF8E4M3 || kind.codes == DType::kF4E2M1;
  };
  if (is_float(a) || is_float(b)) return std::nullopt;
  FormKind common{.codes = a.codes == b.codes ? a.codes : DType::kI8,
                  .group_size = a.group_size,
                  .has_offsets = a.has_offsets || b.has_offsets};
  if (a.group_size != b.group_size) {
    const auto columns = [&](const FormKind& kind) {
      return kind.has_groups() ? kind.group_size : in_features;
    };
    common.group_size = std::gcd(columns(a), columns(b));
    if (common.group_size % kGroupUnit != 0) return std::nullopt;
  }
  return common;
}

NativeForm InKind(const NativeForm& form, const FormKind& kind) {
  NativeForm wider = form;
  if (kind.blocks.empty()) {
    wider.blocks = {};
    wider.scale_blocks.reset();
    wider.offset_blocks.reset();
  }
  const int64_t num_rows = form.codes.shape[0];
  const int64_t in_features = form.codes.shape[1];
  if (form.codes.dtype == DType::kI4 && kind.codes == DType::kI8)
    wider.codes = Made(form.codes, DType::kI8, form.codes.shape,
                       std::make_shared<Int8OfInt4Reader>(form.codes));
  if (!kind.has_groups()) return wider;
  wider.group_size = kind.group_size;
  const int64_t columns = form.group_size == 0 ? in_features : form.group_size;
  const int64_t factor = columns / kind.group_size;
  const Shape shape{num_rows, in_features / kind.group_size};
  const auto repeat = [&](const StoredTensor& values) {
    return Made(values, DType::kF32, shape,
                std::make_shared<RepeatedColumnsReader>(values, factor));
  };
  if (form.group_size != kind.group_size) {
    wider.scales = repeat(form.scales);
    if (form.offsets) wider.offsets = repeat(*form.offsets);
  }
  if (kind.has_offsets && !form.offsets)
    wider.offsets = Made(form.scales, DType::kF32, shape, std::make_shared<ZeroReader>());
  return wider;
}

}  // namespace inflight::quantized
