// SPDX-License-Identifier: Apache-2.0
#include "ops/weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

constexpr int64_t kPanelRows = 64;
constexpr int64_t kSegment = 32;  // elements of a row that are moved at a time: a cache line or two

// Integer elements are stored with half their range added: as a bit pattern, with the sign bit
// turned over. Those of float4 are stored as they are.
constexpr uint32_t kQuadOffset = 0x80808080U;
constexpr uint32_t kNibbleOffset = 0x88888888U;

// `count` elements from source[i] on, as `to`, into `out`.
void ReadSegment(const TensorView& source, int64_t i, int64_t count, DType to, void* out) {
  if (source.dtype == to) {
    std::memcpy(out, static_cast<const std::byte*>(source.data) + BytesOf(to, i),
                BytesOf(to, count));
    return;
  }
  for (int64_t j = 0; j < count; ++j)
    StoreFloat(out, to, j, LoadFloat(source.data, source.dtype, i + j));
}

// One row of 64 into its place in a panel: element k goes to k * 64 + lane. `Unit` is an element,
// or a pair of bf16, or of bytes, that stay together.
template <typename Unit>
void ScatterSegment(const void* segment, int64_t count, Unit* panel, int64_t first, int64_t lane) {
  const auto* units = static_cast<const Unit*>(segment);
  for (int64_t j = 0; j < count; ++j) panel[(first + j) * kPanelRows + lane] = units[j];
}

void ScatterQuads(std::byte* segment, int64_t count, std::byte* panel, int64_t first,
                  int64_t lane) {
  auto* quads = reinterpret_cast<uint32_t*>(segment);
  for (int64_t j = 0; j < count; ++j) quads[j] ^= kQuadOffset;
  ScatterSegment(segment, count, reinterpret_cast<uint32_t*>(panel), first, lane);
}

// Four elements of four bits each to the low halves of four bytes.
uint32_t Spread(uint32_t four) {
  const uint32_t pairs = (four | four << 8) & 0x00ff00ffU;
  return (pairs | pairs << 4) & 0x0f0f0f0fU;
}

void ScatterNibbles(std::byte* segment, int64_t count, uint32_t offset, std::byte* panel,
                    int64_t first, int64_t lane) {
  auto* eights = reinterpret_cast<uint32_t*>(segment);
  for (int64_t j = 0; j < count; ++j) {
    const uint32_t eight = eights[j] ^ offset;
    eights[j] = Spread(eight & 0xffffU) | Spread(eight >> 16) << 4;
  }
  ScatterSegment(segment, count, reinterpret_cast<uint32_t*>(panel), first, lane);
}

void PackPanel(const TensorView& source, DType dtype, WeightLayout layout, int64_t panel_idx,
               std::byte* panel) {
  const int64_t rows = source.shape[0];
  const int64_t columns = source.shape[1];
  alignas(64) std::byte segment[kSegment * sizeof(float)];
  for (int64_t k = 0; k < columns; k += kSegment) {
    const int64_t count = std::min(kSegment, columns - k);
    for (int64_t lane = 0; lane < kPanelRows; ++lane) {
      const int64_t row = panel_idx * kPanelRows + lane;
      if (row >= rows || count < kSegment) std::memset(segment, 0, sizeof(segment));
      if (row < rows) ReadSegment(source, row * columns + k, count, dtype, segment);
      if (layout == WeightLayout::kPanel64Nibbles)
        ScatterNibbles(segment, (count + 7) / 8, dtype == DType::kI4 ? kNibbleOffset : 0, panel,
                       k / 8, lane);
      else if (layout == WeightLayout::kPanel64Vnni4)
        ScatterQuads(segment, (count + 3) / 4, panel, k / 4, lane);
      else if (layout == WeightLayout::kPanel64Vnni2 && SizeOf(dtype) == 1)
        ScatterSegment(segment, (count + 1) / 2, reinterpret_cast<uint16_t*>(panel), k / 2, lane);
      else if (layout == WeightLayout::kPanel64Vnni2)
        ScatterSegment(segment, (count + 1) / 2, reinterpret_cast<uint32_t*>(panel), k / 2, lane);
      else if (SizeOf(dtype) == 1)
        ScatterSegment(segment, count, reinterpret_cast<uint8_t*>(panel), k, lane);
      else if (SizeOf(dtype) == 2)
        ScatterSegment(segment, count, reinterpret_cast<uint16_t*>(panel), k, lane);
      else
        ScatterSegment(segment, count, reinterpret_cast<uint32_t*>(panel), k, lane);
    }
  }
}

void CheckCombination(DType dtype, WeightLayout layout) {
  switch (layout) {
    case WeightLayout::kRowMajor:
      return;
    case WeightLayout::kPanel64:
      CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kU8);
      return;
    case WeightLayout::kPanel64Vnni2:
      CHECK(dtype == DType::kBF16 || dtype == DType::kF8E4M3);
      return;
    case WeightLayout::kPanel64Vnni4:
      CHECK(dtype == DType::kI8);
      return;
    case WeightLayout::kPanel64Nibbles:
      CHECK(HasHalfBytes(dtype));
      return;
    case WeightLayout::kTensorCore:  // made on GPUs
      CHECK(false);
      return;
  }
}

// Elements of k that lie side by side; k is padded to a multiple of them.
int64_t StepOf(WeightLayout layout) {
  if (layout == WeightLayout::kPanel64Nibbles) return 8;
  if (layout == WeightLayout::kPanel64Vnni4) return 4;
  return layout == WeightLayout::kPanel64Vnni2 ? 2 : 1;
}

size_t PanelBytes(DType dtype, WeightLayout layout, int64_t in_features) {
  const int64_t step = StepOf(layout);
  const int64_t k = (in_features + step - 1) / step * step;
  return BytesOf(dtype, k * kPanelRows);
}

// Where element k of `row` of an int8 weight stands.
int64_t QuadIndexOf(const Weight& weight, int64_t row, int64_t k) {
  if (weight.layout == WeightLayout::kRowMajor) return row * weight.in_features + k;
  const auto panel_elements =
      static_cast<int64_t>(PanelBytes(weight.dtype, weight.layout, weight.in_features));
  return row / kPanelRows * panel_elements + (k / 4 * kPanelRows + row % kPanelRows) * 4 + k % 4;
}

// The same of a weight of four bits, in elements: two a byte.
int64_t NibbleIndexOf(const Weight& weight, int64_t row, int64_t k) {
  if (weight.layout == WeightLayout::kRowMajor) return row * weight.in_features + k;
  const auto panel_bytes =
      static_cast<int64_t>(PanelBytes(weight.dtype, weight.layout, weight.in_features));
  const int64_t byte =
      row / kPanelRows * panel_bytes + (k / 8 * kPanelRows + row % kPanelRows) * 4 + k % 4;
  return 2 * byte + k % 8 / 4;
}

// use(k, element k) for one logical row of int8 or int4, or of float4 twice its elements, not
// scaled.
template <typename Use>
void ForEachInteger(const Weight& weight, int64_t row, const Use& use) {
  const bool is_packed = weight.layout != WeightLayout::kRowMajor;
  if (weight.dtype == DType::kF4E2M1) {
    for (int64_t k = 0; k < weight.in_features; ++k) {
      const int code = LoadInt4(weight.data, NibbleIndexOf(weight, row, k)) & 0xf;
      use(k, static_cast<int8_t>(kTwiceE2M1[static_cast<size_t>(code)]));
    }
    return;
  }
  if (weight.dtype == DType::kI4) {
    for (int64_t k = 0; k < weight.in_features; ++k) {
      const int stored = LoadInt4(weight.data, NibbleIndexOf(weight, row, k));
      use(k, static_cast<int8_t>(is_packed ? (stored & 0xf) - 8 : stored));
    }
    return;
  }
  const auto* data = static_cast<const int8_t*>(weight.data);
  const int offset = is_packed ? 0x80 : 0;
  for (int64_t k = 0; k < weight.in_features; ++k)
    use(k, static_cast<int8_t>(data[QuadIndexOf(weight, row, k)] ^ offset));
}

template <typename T, typename Use>
void ForEachOfRowAs(const T* data, const Weight& weight, int64_t row, const Use& use) {
  const int64_t columns = weight.in_features;
  const auto value = [data](int64_t i) {
    if constexpr (std::is_same_v<T, float>)
      return data[i];
    else
      return data[i].ToFloat();
  };
  if (weight.layout == WeightLayout::kRowMajor) {
    for (int64_t k = 0; k < columns; ++k) use(k, value(row * columns + k));
    return;
  }
  const auto panel_elements =
      static_cast<int64_t>(PanelBytes(weight.dtype, weight.layout, columns) / sizeof(T));
  const int64_t first = row / kPanelRows * panel_elements;
  const int64_t lane = row % kPanelRows;
  if (weight.layout == WeightLayout::kPanel64) {
    for (int64_t k = 0; k < columns; ++k) use(k, value(first + k * kPanelRows + lane));
    return;
  }
  for (int64_t k = 0; k < columns; ++k)
    use(k, value(first + (k / 2 * kPanelRows + lane) * 2 + k % 2));
}

// use(k, the element of column k as float32) for one logical row.
template <typename Use>
void ForEachOfRow(const Weight& weight, int64_t row, const Use& use) {
  switch (weight.dtype) {
    case DType::kF32:
      return ForEachOfRowAs(static_cast<const float*>(weight.data), weight, row, use);
    case DType::kF16:
      return ForEachOfRowAs(static_cast<const Float16*>(weight.data), weight, row, use);
    case DType::kBF16:
      return ForEachOfRowAs(static_cast<const BFloat16*>(weight.data), weight, row, use);
    case DType::kF8E4M3:
      return ForEachOfRowAs(static_cast<const Float8E4M3*>(weight.data), weight, row,
                            [&](int64_t k, float value) {
                              use(k, value * ScaleAt(weight, ScaleIndex(weight, row, k)));
                            });
    case DType::kI8:
    case DType::kI4:
    case DType::kF4E2M1:
      return ForEachInteger(weight, row, [&](int64_t k, int8_t value) {
        if (weight.order != nullptr && weight.order[k] == kNoColumn) return;
        const int64_t group = ScaleIndex(weight, row, k);
        use(weight.order == nullptr ? k : weight.order[k],
            std::fma(static_cast<float>(value), ScaleAt(weight, group), OffsetAt(weight, group)));
      });
    default:
      CHECK(false);
  }
}

// unit * int8 of the group whose scale stands at `index`.
float OfBlock(const Weight& weight, const uint8_t* blocks, int64_t index) {
  const int64_t lanes = weight.layout == WeightLayout::kRowMajor ? 1 : kPanelRows;
  const int64_t group = index / lanes;  // of all panels or rows
  const int groups = weight.blocks.groups;
  const uint8_t* const block =
      blocks + group / groups * weight.blocks.num_bytes() * lanes + index % lanes;
  const float unit = Float16{static_cast<uint16_t>(block[0] | block[lanes] << 8)}.ToFloat();
  if (groups == 1) return unit;
  return unit * static_cast<float>(
                    static_cast<int8_t>(block[(ScaleBlocks::kUnitBytes + group % groups) * lanes]));
}

}  // namespace

std::string_view WeightLayoutName(WeightLayout layout) {
  switch (layout) {
    case WeightLayout::kRowMajor:
      return "row_major";
    case WeightLayout::kPanel64:
      return "panel64";
    case WeightLayout::kPanel64Vnni2:
      return "panel64_vnni2";
    case WeightLayout::kPanel64Vnni4:
      return "panel64_vnni4";
    case WeightLayout::kPanel64Nibbles:
      return "panel64_nibbles";
    case WeightLayout::kTensorCore:
      return "tensor_core";
  }
  return "unknown";
}

std::optional<WeightLayout> WeightLayoutFromName(std::string_view name) {
  for (const WeightLayout layout :
       {WeightLayout::kRowMajor, WeightLayout::kPanel64, WeightLayout::kPanel64Vnni2,
        WeightLayout::kPanel64Vnni4, WeightLayout::kPanel64Nibbles})
    if (WeightLayoutName(layout) == name) return layout;
  return std::nullopt;
}

bool IsInteger(DType weight_dtype) {
  return weight_dtype == DType::kI8 || HasHalfBytes(weight_dtype);
}

size_t WeightBytes(DType dtype, WeightLayout layout, int64_t out_features, int64_t in_features) {
  if (layout == WeightLayout::kRowMajor) return BytesOf(dtype, out_features * in_features);
  const auto panels = static_cast<size_t>((out_features + kPanelRows - 1) / kPanelRows);
  return panels * PanelBytes(dtype, layout, in_features);
}

WeightLayout CpuWeightLayout(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return WeightLayout::kPanel64Vnni4;
    case DType::kI4:
    case DType::kF4E2M1:
      return WeightLayout::kPanel64Nibbles;
    case DType::kBF16:
    case DType::kF8E4M3:
      return WeightLayout::kPanel64Vnni2;
    default:
      return WeightLayout::kPanel64;
  }
}

int64_t NumScales(WeightLayout layout, int64_t out_features, int64_t in_features,
                  int64_t group_size) {
  if (group_size == 0) return out_features;
  const int64_t rows = layout == WeightLayout::kRowMajor
                           ? out_features
                           : (out_features + kPanelRows - 1) / kPanelRows * kPanelRows;
  return rows * (in_features / group_size);
}

int64_t ScaleIndex(const Weight& weight, int64_t n, int64_t k) {
  if (weight.group_size == 0) return n;
  const int64_t group = k / weight.group_size;
  if (weight.layout == WeightLayout::kRowMajor) return n * weight.num_groups() + group;
  return (n / kPanelRows * weight.num_groups() + group) * kPanelRows + n % kPanelRows;
}

float ScaleAt(const Weight& weight, int64_t index) {
  if (weight.exponents != nullptr) return HalfOfE8M0(std::byte{weight.exponents[index]});
  if (weight.scale_blocks != nullptr) return OfBlock(weight, weight.scale_blocks, index);
  return weight.scales[index];
}

float OffsetAt(const Weight& weight, int64_t index) {
  if (weight.offset_blocks == nullptr)
    return weight.offsets == nullptr ? 0.0F : weight.offsets[index];
  return std::fma(static_cast<float>(weight.blocks.middle), ScaleAt(weight, index),
                  OfBlock(weight, weight.offset_blocks, index));
}

void PackScales(const float* source, int64_t out_features, int64_t num_groups, WeightLayout layout,
                float* target) {
  if (layout == WeightLayout::kRowMajor) {
    std::copy_n(source, out_features * num_groups, target);
    return;
  }
  const int64_t padded = (out_features + kPanelRows - 1) / kPanelRows * kPanelRows;
  for (int64_t n = 0; n < padded; ++n)
    for (int64_t g = 0; g < num_groups; ++g)
      target[(n / kPanelRows * num_groups + g) * kPanelRows + n % kPanelRows] =
          n < out_features ? source[n * num_groups + g] : 0.0F;
}

Weight RowsOf(const Weight& weight, int64_t first, int64_t num_rows) {
  CHECK(weight.layout == WeightLayout::kRowMajor || first % kPanelRows == 0);
  Weight rows = weight;
  rows.data = static_cast<const std::byte*>(weight.data) +
              WeightBytes(weight.dtype, weight.layout, first, weight.in_features);
  rows.out_features = num_rows;
  // `first` is a whole number of panels where there are any, so that groups lie in a row with it.
  if (weight.scales != nullptr) rows.scales = weight.scales + first * weight.num_groups();
  if (weight.offsets != nullptr) rows.offsets = weight.offsets + first * weight.num_groups();
  if (weight.exponents != nullptr) rows.exponents = weight.exponents + first * weight.num_groups();
  if (weight.scale_blocks != nullptr)
    rows.scale_blocks = weight.scale_blocks + first * weight.block_bytes();
  if (weight.offset_blocks != nullptr)
    rows.offset_blocks = weight.offset_blocks + first * weight.block_bytes();
  return rows;
}

void PackWeight(const TensorView& source, DType dtype, WeightLayout layout, void* target,
                CpuPool* pool) {
  CHECK_EQ(source.shape.rank(), 2);
  CheckCombination(dtype, layout);
  if (IsInteger(dtype) || IsInteger(source.dtype)) CHECK(dtype == source.dtype);
  const int64_t rows = source.shape[0];
  const int64_t columns = source.shape[1];
  if (HasHalfBytes(dtype)) CHECK_EQ(columns % 2, 0);
  auto* out = static_cast<std::byte*>(target);
  const bool row_major = layout == WeightLayout::kRowMajor;
  const size_t panel_bytes = PanelBytes(dtype, layout, columns);
  const auto pack = [&](int64_t i) {  // a row, or a panel of 64
    if (row_major)
      ReadSegment(source, i * columns, columns, dtype, out + BytesOf(dtype, i * columns));
    else
      PackPanel(source, dtype, layout, i, out + static_cast<size_t>(i) * panel_bytes);
  };
  const int64_t items = row_major ? rows : (rows + kPanelRows - 1) / kPanelRows;
  if (pool != nullptr) {
    pool->ParallelFor(items, pack);
  } else {
    for (int64_t i = 0; i < items; ++i) pack(i);
  }
}

void UnpackWeightRow(const Weight& weight, int64_t row, float* out) {
  ForEachOfRow(weight, row, [out](int64_t k, float value) { out[k] = value; });
}

void AddWeightRow(const Weight& weight, int64_t row, float* out) {
  ForEachOfRow(weight, row, [out](int64_t k, float value) { out[k] += value; });
}

}  // namespace inflight::ops
