// SPDX-License-Identifier: Apache-2.0
#include "quantized/packed_matrix.h"

#include <algorithm>
#include <array>
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

class MatrixReader final : public artifact::TensorReader {
 public:
  explicit MatrixReader(PackedMatrix matrix) : m_(std::move(matrix)) {
    mask_ = static_cast<uint32_t>((1 << m_.bits) - 1);
    per_word_ = 32 / m_.bits;
    if (m_.layout == CodeLayout::kFp8)
      for (size_t code = 0; code < fp8_.size(); ++code)
        fp8_[code] = Float8E4M3{static_cast<uint8_t>(code)}.ToFloat();
  }

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
  // Codes as floats; rows of `out` lie `stride` apart.
  void Unpack(const artifact::TensorBlock& tile, float* out, int64_t stride) const {
    switch (m_.layout) {
      case CodeLayout::kAwq:
        return UnpackAwq(tile, out, stride);
      case CodeLayout::kGptq:
        return UnpackGptq(tile, out, stride);
      case CodeLayout::kRowWords:
      case CodeLayout::kInt8:
      case CodeLayout::kFp8:
        for (int64_t i = 0; i < tile.num_rows; ++i, out += stride)
          UnpackRow(tile.row + i, tile.column, tile.num_columns, out);
    }
  }

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

  void FillGroups(int64_t row, std::span<float> scales, std::span<float> zeros) const {
    const int64_t first = row / m_.block_rows * m_.row_stride;
    for (int64_t g = 0; g < m_.num_groups; ++g) {
      const int64_t i = first + g * m_.group_stride;
      scales[static_cast<size_t>(g)] = LoadFloat(m_.scales.data(), m_.scale_dtype, i);
      zeros[static_cast<size_t>(g)] = static_cast<float>(ZeroOf(row, g, i));
    }
  }

  // `i` is the index of the scale.
  int ZeroOf(int64_t row, int64_t group, int64_t i) const {
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
        return LoadAs<int8_t>(m_.zeros.data(), i) + m_.zero;
    }
    CHECK(false);
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

  PackedMatrix m_;
  uint32_t mask_ = 0;
  int64_t per_word_ = 1;
  std::array<float, 256> fp8_{};
};

class SignedCodeReader final : public artifact::TensorReader {
 public:
  explicit SignedCodeReader(const PackedMatrix& m)
      : codes_(m.codes), row_bytes_(m.in_features * m.bits / 8), bits_(m.bits) {}

  void Read(const artifact::TensorBlock& block, void* out) const override {
    const std::byte flip{static_cast<uint8_t>(bits_ == 4 ? 0x88 : 0x80)};
    const int64_t num_bytes = block.num_columns * bits_ / 8;
    auto* to = static_cast<std::byte*>(out);
    for (int64_t row = block.row; row < block.row + block.num_rows; ++row) {
      const std::byte* const from = codes_.data() + row * row_bytes_ + block.column * bits_ / 8;
      to = std::transform(from, from + num_bytes, to, [=](std::byte b) { return b ^ flip; });
    }
  }

 private:
  std::span<const std::byte> codes_;
  int64_t row_bytes_;
  int bits_;
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

std::shared_ptr<const artifact::TensorReader> SignedCodes(const PackedMatrix& matrix) {
  CHECK(matrix.layout == CodeLayout::kRowWords);
  return std::make_shared<SignedCodeReader>(matrix);
}

std::shared_ptr<const artifact::TensorReader> Repeated(std::span<const std::byte> element) {
  return std::make_shared<RepeatedReader>(element);
}

}  // namespace inflight::quantized
