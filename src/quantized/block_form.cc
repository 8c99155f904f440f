// SPDX-License-Identifier: Apache-2.0
#include "quantized/block_form.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "artifact/block_integers.h"
#include "tensor/element.h"

namespace inflight::quantized {
namespace {

using artifact::BlockIntegers;

// Rows of `width` elements, whole blocks.
class BlockRows : public artifact::TensorReader {
 public:
  BlockRows(const BlockIntegers& type, std::span<const std::byte> data, int64_t width)
      : type_(type), data_(data), width_(width) {}

 protected:
  // Calls use(bytes of a block, first, count) for the pieces of `rectangle`, whose columns are
  // `of_block` for each block of a row: which of a block's it takes.
  template <typename Use>
  void ForEachPiece(const artifact::TensorBlock& rectangle, int64_t of_block,
                    const Use& use) const {
    const int64_t blocks_of_row = width_ / type_.num_elements;
    const int64_t end = rectangle.column + rectangle.num_columns;
    for (int64_t row = rectangle.row; row < rectangle.row + rectangle.num_rows; ++row)
      for (int64_t column = rectangle.column; column < end;) {
        const int64_t first = column % of_block;
        const int64_t count = std::min(end - column, of_block - first);
        use(data_.data() + (row * blocks_of_row + column / of_block) * type_.num_bytes, first,
            count);
        column += count;
      }
  }

  const BlockIntegers& type_;

 private:
  std::span<const std::byte> data_;
  int64_t width_;
};

class BlockCodeReader final : public BlockRows {
 public:
  using BlockRows::BlockRows;

  void Read(const artifact::TensorBlock& block, void* out) const override {
    std::array<int8_t, BlockIntegers::kMaxElements> codes;
    auto* to = static_cast<std::byte*>(out);
    ForEachPiece(block, type_.num_elements,
                 [&](const std::byte* bytes, int64_t first, int64_t count) {
                   type_.decode(bytes, codes.data(), nullptr, nullptr);
                   to = Store(codes.data() + first, count, to);
                 });
  }

 private:
  std::byte* Store(const int8_t* codes, int64_t n, std::byte* to) const {
    if (type_.bits == 8)
      return std::transform(codes, codes + n, to,
                            [](int8_t code) { return static_cast<std::byte>(code); });
    for (int64_t i = 0; i < n; i += 2) *to++ = std::byte{PackInt4(codes[i], codes[i + 1])};
    return to;
  }
};

class BlockGroupReader final : public BlockRows {
 public:
  BlockGroupReader(const BlockIntegers& type, std::span<const std::byte> data, int64_t width,
                   bool has_offsets)
      : BlockRows(type, data, width), has_offsets_(has_offsets) {}

  void Read(const artifact::TensorBlock& block, void* out) const override {
    std::array<float, BlockIntegers::kMaxGroups> values;
    auto* to = static_cast<float*>(out);
    ForEachPiece(block, type_.num_groups(),
                 [&](const std::byte* bytes, int64_t first, int64_t count) {
                   type_.decode(bytes, nullptr, has_offsets_ ? nullptr : values.data(),
                                has_offsets_ ? values.data() : nullptr);
                   to = std::copy_n(values.data() + first, count, to);
                 });
  }

 private:
  bool has_offsets_;  // reads offsets, else scales
};

// Columns are bytes of the blocks of scales, or of offsets.
class BlockUnitReader final : public BlockRows {
 public:
  BlockUnitReader(const BlockIntegers& type, std::span<const std::byte> data, int64_t width,
                  bool are_offsets)
      : BlockRows(type, data, width), are_offsets_(are_offsets) {}

  void Read(const artifact::TensorBlock& block, void* out) const override {
    std::array<std::byte, ScaleBlocks::kUnitBytes + ScaleBlocks::kMaxGroups> values;
    auto* to = static_cast<std::byte*>(out);
    ForEachPiece(block, type_.scale_blocks().num_bytes(),
                 [&](const std::byte* bytes, int64_t first, int64_t count) {
                   type_.take_units(bytes, are_offsets_ ? nullptr : values.data(),
                                    are_offsets_ ? values.data() : nullptr);
                   to = std::copy_n(values.data() + first, count, to);
                 });
  }

 private:
  bool are_offsets_;  // reads those of offsets, else of scales
};

// Blocks of MXFP4: an exponent, and 16 bytes of which byte i holds element i in its low bits and
// 16 + i above.
constexpr std::string_view kMxfp4 = "MXFP4";
constexpr int64_t kMxBlockElements = 32;
constexpr int64_t kMxBlockBytes = 1 + kMxBlockElements / 2;

class MxReader : public artifact::TensorReader {
 public:
  MxReader(std::span<const std::byte> data, int64_t width) : data_(data), width_(width) {}

 protected:
  const std::byte* BlockAt(int64_t row, int64_t column) const {
    return data_.data() + (row * width_ + column) / kMxBlockElements * kMxBlockBytes;
  }

 private:
  std::span<const std::byte> data_;
  int64_t width_;
};

// From even columns to even columns, two elements a byte.
class MxCodeReader final : public MxReader {
 public:
  using MxReader::MxReader;

  void Read(const artifact::TensorBlock& block, void* out) const override {
    auto* to = static_cast<std::byte*>(out);
    for (int64_t row = block.row; row < block.row + block.num_rows; ++row)
      for (int64_t k = block.column; k < block.column + block.num_columns; k += 2)
        *to++ = Pair(BlockAt(row, k) + 1, k % kMxBlockElements);
  }

 private:
  static std::byte Pair(const std::byte* halves, int64_t i) {
    constexpr int64_t kHalf = kMxBlockElements / 2;
    constexpr std::byte kLow{0xf};
    if (i < kHalf) return (halves[i] & kLow) | (halves[i + 1] & kLow) << 4;
    return halves[i - kHalf] >> 4 | (halves[i - kHalf + 1] & ~kLow);
  }
};

class MxScaleReader final : public MxReader {
 public:
  using MxReader::MxReader;

  void Read(const artifact::TensorBlock& block, void* out) const override {
    auto* to = static_cast<std::byte*>(out);
    for (int64_t row = block.row; row < block.row + block.num_rows; ++row)
      for (int64_t g = block.column; g < block.column + block.num_columns; ++g)
        *to++ = *BlockAt(row, g * kMxBlockElements);
  }
};

NativeForm FormOfMxfp4(const artifact::StoredTensor& blocks, int64_t num_rows, int64_t width) {
  return {.codes = {.name = blocks.name,
                    .dtype = DType::kF4E2M1,
                    .shape = {num_rows, width},
                    .data = {},
                    .reader = std::make_shared<MxCodeReader>(blocks.data, width)},
          .scales = {.name = blocks.name,
                     .dtype = DType::kU8,
                     .shape = {num_rows, width / kMxBlockElements},
                     .data = {},
                     .reader = std::make_shared<MxScaleReader>(blocks.data, width)},
          .group_size = kMxBlockElements};
}

}  // namespace

std::optional<NativeForm> FormOfBlocks(const artifact::StoredTensor& blocks) {
  const int rank = blocks.shape.rank();
  if (blocks.codec == nullptr || rank < 2 || rank > 3) return std::nullopt;
  const int64_t width = blocks.shape[rank - 1];
  if (blocks.codec->name == kMxfp4 && width > 0 && width % kMxBlockElements == 0)
    return FormOfMxfp4(blocks, blocks.shape.num_elements() / width, width);
  const BlockIntegers* const type = artifact::FindBlockIntegers(blocks.codec->name);
  if (type == nullptr || width == 0 || width % type->num_elements != 0) return std::nullopt;
  const int64_t num_rows = blocks.shape.num_elements() / width;
  const auto groups = [&](bool are_offsets) -> artifact::StoredTensor {
    return {.name = blocks.name,
            .dtype = DType::kF32,
            .shape = {num_rows, width / type->group_size},
            .data = {},
            .reader = std::make_shared<BlockGroupReader>(*type, blocks.data, width, are_offsets)};
  };
  NativeForm form{.codes = {.name = blocks.name,
                            .dtype = type->bits == 4 ? DType::kI4 : DType::kI8,
                            .shape = {num_rows, width},
                            .data = {},
                            .reader = std::make_shared<BlockCodeReader>(*type, blocks.data, width)},
                  .scales = groups(/*are_offsets=*/false),
                  .group_size = type->group_size};
  form.blocks = type->scale_blocks();
  const int64_t unit_bytes = width / type->num_elements * form.blocks.num_bytes();
  const auto units = [&](bool are_offsets) -> artifact::StoredTensor {
    return {.name = blocks.name,
            .dtype = DType::kU8,
            .shape = {num_rows, unit_bytes},
            .data = {},
            .reader = std::make_shared<BlockUnitReader>(*type, blocks.data, width, are_offsets)};
  };
  form.scale_blocks = units(/*are_offsets=*/false);
  if (type->has_offsets) {
    form.offsets = groups(/*are_offsets=*/true);
    form.offset_blocks = units(/*are_offsets=*/true);
  }
  return form;
}

}  // namespace inflight::quantized
