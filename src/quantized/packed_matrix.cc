// SPDX-License-Identifier: Apache-2.0
#include "quantized/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "tensor/element.h"

namespace inflight::quantized {
namespace {

// A block is made in tiles, so that words that hold several rows stay in a core's cache.
constexpr int64_t kTileRows = 16;
constexpr int64_t kTileColumns = 1024;

// Where column c of eight stands in a word of AWQ.
constexpr std::array<int, 8> kAwqPlace = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t WordAt(std::span<const std::byte> words, int64_t i) {
  return LoadAs<uint32_t>(words.data(), i);
}

// What the readers of a matrix have in common.
class MatrixParts : public artifact::TensorReader {
 public:
  explicit MatrixParts(PackedMatrix matrix) : m_(std::move(matrix)) {
    mask_ = static_cast<uint32_t>((1 << m_.bits) - 1);
    per_word_ = 32 / m_.bits;
    if (m_.layout == CodeLayout::kFp8)
      for (size_t code = 0; code < fp8_.size(); ++code)
        fp8_[code] = Float8E4M3{static_cast<uint8_t>(code)}.ToFloat();
  }

 protected:
  // Codes as floats; rows of `out` lie `stride` apart.
  void Unpack(const artifact::TensorBlock& tile, float* out, int64_t stride) const {
    if (m_.order == nullptr) return UnpackStored(tile, out, stride);
    artifact::TensorBlock one = tile;
    one.num_columns = 1;
    for (int64_t j = 0; j < tile.num_columns; ++j) {
      one.column = (*m_.order)[static_cast<size_t>(tile.column + j)];
      UnpackStored(one, out + j, stride);
    }
  }

  // The same, of columns as they are stored.
  void UnpackStored(const artifact::TensorBlock& tile, float* out, int64_t stride) const {
    switch (m_.layout) {
      case CodeLayout::kAwq:
        return UnpackAwq(tile, out, stride);
      case CodeLayout::kGptq:
        return UnpackGptq(tile, out, stride);
      case CodeLayout::kRowPairs:
        return UnpackPairs(tile, out, stride);
      case CodeLayout::kRowWords:
      case CodeLayout::kInt8:
      case CodeLayout::kFp8:
        for (int64_t i = 0; i < tile.num_rows; ++i, out += stride)
          UnpackRow(tile.row + i, tile.column, tile.num_columns, out);
    }
  }

  // Where the scale of a row's group stands.
  int64_t ScaleIndex(int64_t row, int64_t group) const {
    return row / m_.block_rows * m_.row_stride + group * m_.group_stride;
  }
  float ScaleOf(int64_t row, int64_t group) const {
    return LoadFloat(m_.scales.data(), m_.scale_dtype, ScaleIndex(row, group));
  }
  int ZeroOf(int64_t row, int64_t group) const {
    const auto part = [&](int64_t word, int64_t place) {
      const auto shift = static_cast<uint32_t>(place * m_.bits);
      return static_cast<int>(WordAt(m_.zeros, word) >> shift & mask_) + m_.zero;
    };
    switch (m_.zero_layout) {
      case ZeroLayout::kConstant:
        return m_.zero;
      case ZeroLayout::kAwq:
        return part(group * (m_.out_features / 8) + row / 8,
                    kAwqPlace[static_cast<size_t>(row % 8)]);
      case ZeroLayout::kGptq:
        return part(group * (m_.out_features / per_word_) + row / per_word_, row % per_word_);
      case ZeroLayout::kColumnWords:
        return part(row / per_word_ * m_.num_groups + group, row % per_word_);
      case ZeroLayout::kInt8:
        return LoadAs<int8_t>(m_.zeros.data(), ScaleIndex(row, group)) + m_.zero;
      case ZeroLayout::kOffsets:
        return m_.Middle() - OffsetOf(row, group).value_or(0);
    }
    CHECK(false);
  }
  // Of ZeroLayout::kOffsets, in scales.
  std::optional<int> OffsetOf(int64_t row, int64_t group) const {
    const int64_t i = (row / m_.zero_rows * m_.num_groups + group) * m_.zero_rows;
    return MultipleOf(LoadFloat(m_.zeros.data(), m_.zero_dtype, i + row % m_.zero_rows),
                      m_.zero_dtype, ScaleOf(row, group), m_.bits);
  }

  const PackedMatrix m_;

 private:
  void UnpackAwq(const artifact::TensorBlock& tile, float* out, int64_t stride) const {
    const int64_t words_per_input = m_.out_features / 8;
    for (int64_t j = 0; j < tile.num_columns; ++j)
      for (int64_t i = 0; i < tile.num_rows; ++i) {
        const int64_t row = tile.row + i;
        const uint32_t word = WordAt(m_.codes, (tile.column + j) * words_per_input + row / 8);
        out[i * stride + j] =
            static_cast<float>(word >> (4 * kAwqPlace[static_cast<size_t>(row % 8)]) & 0xfU);
      }
  }

  void UnpackGptq(const artifact::TensorBlock& tile, float* out, int64_t stride) const {
    for (int64_t j = 0; j < tile.num_columns; ++j) {
      const int64_t column = tile.column + j;
      const int64_t first = column / per_word_ * m_.out_features + tile.row;
      const auto shift = static_cast<uint32_t>(column % per_word_ * m_.bits);
      for (int64_t i = 0; i < tile.num_rows; ++i)
        out[i * stride + j] = static_cast<float>(WordAt(m_.codes, first + i) >> shift & mask_);
    }
  }

  void UnpackPairs(const artifact::TensorBlock& tile, float* out, int64_t stride) const {
    for (int64_t i = 0; i < tile.num_rows; ++i, out += stride) {
      const int64_t row = tile.row + i;
      const std::byte* const from = m_.codes.data() + row / 2 * m_.in_features + tile.column;
      for (int64_t j = 0; j < tile.num_columns; ++j) {
        const auto byte = static_cast<uint32_t>(from[j]);
        out[j] = static_cast<float>((row % 2 == 0 ? byte & 0xfU : byte >> 4) ^ 8U);
      }
    }
  }

  void UnpackRow(int64_t row, int64_t column, int64_t n, float* out) const {
    if (m_.layout == CodeLayout::kRowWords) {
      const int64_t first = row * ((m_.in_features + per_word_ - 1) / per_word_);
      for (int64_t j = 0; j < n; ++j) {
        const int64_t k = column + j;
        const auto shift = static_cast<uint32_t>(k % per_word_ * m_.bits);
        out[j] = static_cast<float>(WordAt(m_.codes, first + k / per_word_) >> shift & mask_);
      }
      return;
    }
    const std::byte* const from = m_.codes.data() + row * m_.in_features + column;
    if (m_.layout == CodeLayout::kInt8)
      for (int64_t j = 0; j < n; ++j) out[j] = static_cast<float>(static_cast<int8_t>(from[j]));
    else
      for (int64_t j = 0; j < n; ++j) out[j] = fp8_[static_cast<size_t>(from[j])];
  }

  uint32_t mask_ = 0;
  int64_t per_word_ = 1;
  std::array<float, 256> fp8_{};
};

class MatrixReader final : public MatrixParts {
 public:
  using MatrixParts::MatrixParts;

  void Read(const artifact::TensorBlock& block, void* out) const override {
    std::vector<float> scales(static_cast<size_t>(m_.num_groups));
    std::vector<float> zeros(scales.size());
    auto* const values = static_cast<float*>(out);
    for (int64_t row = 0; row < block.num_rows; row += kTileRows) {
      const int64_t num_rows = std::min(kTileRows, block.num_rows - row);
      for (int64_t column = 0; column < block.num_columns; column += kTileColumns)
        Unpack({.row = block.row + row,
                .num_rows = num_rows,
                .column = block.column + column,
                .num_columns = std::min(kTileColumns, block.num_columns - column)},
               values + row * block.num_columns + column, block.num_columns);
      for (int64_t i = row; i < row + num_rows; ++i) {
        FillGroups(block.row + i, scales, zeros);
        Scale(block.column, block.num_columns, scales, zeros, values + i * block.num_columns);
      }
    }
  }

 private:
  void FillGroups(int64_t row, std::span<float> scales, std::span<float> zeros) const {
    for (int64_t g = 0; g < m_.num_groups; ++g) {
      scales[static_cast<size_t>(g)] = ScaleOf(row, g);
      zeros[static_cast<size_t>(g)] = static_cast<float>(ZeroOf(row, g));
    }
  }

  void Scale(int64_t column, int64_t n, std::span<const float> scales, std::span<const float> zeros,
             float* values) const {
    int64_t j = 0;
    while (j < n) {
      const int64_t k = column + j;
      const bool is_listed = !m_.groups.empty();
      const auto g =
          static_cast<size_t>(is_listed ? m_.groups[static_cast<size_t>(k)] : k / m_.group_size);
      const int64_t end = is_listed ? j + 1 : std::min(n, j + m_.group_size - k % m_.group_size);
      for (; j < end; ++j) values[j] = (values[j] - zeros[g]) * scales[g];
    }
    if (m_.rounds_to == DType::kF16)
      for (j = 0; j < n; ++j) values[j] = Float16::FromFloat(values[j]).ToFloat();
    if (m_.rounds_to == DType::kBF16)
      for (j = 0; j < n; ++j) values[j] = BFloat16::FromFloat(values[j]).ToFloat();
  }
};

// Codes less their middle, as int8 or int4.
class CodeReader final : public MatrixParts {
 public:
  using MatrixParts::MatrixParts;

  void Read(const artifact::TensorBlock& block, void* out) const override {
    if (m_.layout == CodeLayout::kRowWords && m_.in_features % (32 / m_.bits) == 0 &&
        m_.order == nullptr)
      return Flip(block, out);
    const auto middle = static_cast<float>(m_.Middle());
    std::vector<float> tile(static_cast<size_t>(kTileRows * kTileColumns));
    auto* const bytes = static_cast<std::byte*>(out);
    for (int64_t row = 0; row < block.num_rows; row += kTileRows)
      for (int64_t column = 0; column < block.num_columns; column += kTileColumns) {
        const int64_t num_rows = std::min(kTileRows, block.num_rows - row);
        const int64_t num_columns = std::min(kTileColumns, block.num_columns - column);
        Unpack({.row = block.row + row,
                .num_rows = num_rows,
                .column = block.column + column,
                .num_columns = num_columns},
               tile.data(), num_columns);
        for (int64_t i = 0; i < num_rows; ++i) {
          const int64_t first = (row + i) * block.num_columns + column;
          Store(tile.data() + i * num_columns, num_columns, middle, bytes + first * m_.bits / 8);
        }
      }
  }

 private:
  // Rows of whole words have the engine's order: bytes with the middle taken off by a flipped bit.
  void Flip(const artifact::TensorBlock& block, void* out) const {
    const std::byte flip{static_cast<uint8_t>(m_.bits == 4 ? 0x88 : 0x80)};
    const int64_t row_bytes = m_.in_features * m_.bits / 8;
    const int64_t num_bytes = block.num_columns * m_.bits / 8;
    auto* to = static_cast<std::byte*>(out);
    for (int64_t row = block.row; row < block.row + block.num_rows; ++row) {
      const std::byte* const from = m_.codes.data() + row * row_bytes + block.column * m_.bits / 8;
      to = std::transform(from, from + num_bytes, to, [=](std::byte b) { return b ^ flip; });
    }
  }

  void Store(const float* codes, int64_t n, float middle, std::byte* to) const {
    const auto code = [=](int64_t j) { return static_cast<int>(codes[j] - middle); };
    if (m_.bits == 4)
      for (int64_t j = 0; j < n; j += 2) *to++ = std::byte{PackInt4(code(j), code(j + 1))};
    else
      for (int64_t j = 0; j < n; ++j) *to++ = static_cast<std::byte>(code(j));
  }
};

enum class GroupPart : uint8_t { kScale, kOffset };

class GroupReader final : public MatrixParts {
 public:
  GroupReader(PackedMatrix matrix, GroupPart part) : MatrixParts(std::move(matrix)), part_(part) {}

  void Read(const artifact::TensorBlock& block, void* out) const override {
    auto* to = static_cast<float*>(out);
    for (int64_t row = block.row; row < block.row + block.num_rows; ++row)
      for (int64_t g = block.column; g < block.column + block.num_columns; ++g) {
        const float scale = ScaleOf(row, g);
        *to++ = part_ == GroupPart::kScale
                    ? scale
                    : static_cast<float>(m_.Middle() - ZeroOf(row, g)) * scale;
      }
  }

  bool HasZerosAlone() const {
    for (int64_t g = 0; g < m_.num_groups; ++g)
      for (int64_t row = 0; row < m_.out_features; ++row)
        if (ZeroOf(row, g) != m_.Middle()) return false;
    return true;
  }

  bool HasMultiplesAlone() const {
    for (int64_t g = 0; g < m_.num_groups; ++g)
      for (int64_t row = 0; row < m_.out_features; ++row)
        if (!OffsetOf(row, g)) return false;
    return true;
  }

 private:
  GroupPart part_;
};

class RepeatedReader final : public artifact::TensorReader {
 public:
  explicit RepeatedReader(std::span<const std::byte> element) : element_(element) {}

  void Read(const artifact::TensorBlock& block, void* out) const override {
    auto* to = static_cast<std::byte*>(out);
    for (int64_t i = 0; i < block.num_rows * block.num_columns; ++i, to += element_.size())
      std::memcpy(to, element_.data(), element_.size());
  }

 private:
  std::span<const std::byte> element_;
};

}  // namespace

artifact::StoredTensor PackedMatrix::AsTensor(std::string name) const {
  return {.name = std::move(name),
          .dtype = DType::kF32,
          .shape = {out_features, in_features},
          .data = {},
          .reader = std::make_shared<MatrixReader>(*this)};
}

int PackedMatrix::Middle() const {
  return layout == CodeLayout::kInt8 || layout == CodeLayout::kFp8 ? 0 : 1 << (bits - 1);
}

artifact::StoredTensor PackedMatrix::Codes(std::string name) const {
  return {.name = std::move(name),
          .dtype = bits == 4 ? DType::kI4 : DType::kI8,
          .shape = {out_features, in_features},
          .data = {},
          .reader = std::make_shared<CodeReader>(*this)};
}

artifact::StoredTensor PackedMatrix::Scales(std::string name) const {
  return {.name = std::move(name),
          .dtype = DType::kF32,
          .shape = {out_features, num_groups},
          .data = {},
          .reader = std::make_shared<GroupReader>(*this, GroupPart::kScale)};
}

artifact::StoredTensor PackedMatrix::Offsets(std::string name) const {
  return {.name = std::move(name),
          .dtype = DType::kF32,
          .shape = {out_features, num_groups},
          .data = {},
          .reader = std::make_shared<GroupReader>(*this, GroupPart::kOffset)};
}

bool PackedMatrix::IsSymmetric() const {
  if (zero_layout == ZeroLayout::kConstant) return zero == Middle();
  return GroupReader(*this, GroupPart::kOffset).HasZerosAlone();
}

bool PackedMatrix::HasMultiples() const {
  return GroupReader(*this, GroupPart::kOffset).HasMultiplesAlone();
}

std::optional<int> MultipleOf(float offset, DType dtype, float scale, int bits) {
  const float ratio = scale == 0 ? 0 : offset / scale;
  const auto most = static_cast<float>(1 << (bits - 1));
  if (!(std::abs(ratio) < most + 0.5F)) return std::nullopt;  // nor what is no number
  const int multiple = static_cast<int>(std::lround(ratio));
  float rounded = 0;
  StoreFloat(&rounded, dtype, 0, static_cast<float>(multiple) * scale);
  if (LoadFloat(&rounded, dtype, 0) != offset) return std::nullopt;
  return multiple;
}

std::shared_ptr<const artifact::TensorReader> Repeated(std::span<const std::byte> element) {
  return std::make_shared<RepeatedReader>(element);
}

}  // namespace inflight::quantized
