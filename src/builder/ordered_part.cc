// SPDX-License-Identifier: Apache-2.0
#include "builder/ordered_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "tensor/element.h"

namespace inflight::builder {
namespace {

using artifact::StoredTensor;
using artifact::TensorBlock;
using model::LinearForm;
using model::WeightSlot;

constexpr int32_t kZeros = -1;           // in place of a column, or group, of the whole weight
constexpr int64_t kRowsReadAtOnce = 16;  // a packed word may hold codes of several rows

bool IsCutByColumns(std::string_view stem) {
  return stem.ends_with(".attention.dense") || stem.ends_with(".mlp.proj");
}

std::string StemOfSlot(const WeightSlot& slot) { return slot.name.substr(0, slot.name.rfind('.')); }

// Columns of a rank's part of `in_features` columns in groups of `group_size`: its own, and as many
// zeros as there can be behind the groups.
int64_t ColumnsOfPart(int64_t in_features, int64_t group_size, int tp_size) {
  constexpr int64_t kStep = ops::kGroupStep;
  const int64_t own = in_features / tp_size;
  const int64_t most_groups = std::min(in_features / group_size, own);
  return (own + most_groups * (kStep - 1) + kStep - 1) / kStep * kStep;
}

// Columns that a linear of the whole model reads.
int64_t InFeatures(std::string_view stem, const model::ModelConfig& config) {
  return stem.ends_with(".mlp.proj") ? config.intermediate_size
                                     : int64_t{config.num_heads} * config.head_dim;
}

// The order of a part, and of each of its columns the place in the whole weight's order.
struct Places {
  std::vector<int32_t> order;
  std::vector<int32_t> columns;
};

Places PlacesOf(std::span<const int32_t> order, int64_t group_size, int tp_size, int tp_rank) {
  const auto in_features = static_cast<int64_t>(order.size());
  const int64_t own = in_features / tp_size;
  const auto size = static_cast<size_t>(ColumnsOfPart(in_features, group_size, tp_size));
  Places places;
  const auto add = [&](int32_t column, int32_t place) {
    places.order.push_back(column);
    places.columns.push_back(place);
  };
  for (int64_t k = 0; k < in_features; ++k) {
    const int64_t column = order[static_cast<size_t>(k)] - tp_rank * own;
    if (column >= 0 && column < own) add(static_cast<int32_t>(column), static_cast<int32_t>(k));
    if ((k + 1) % group_size == 0)
      while (places.order.size() % ops::kGroupStep != 0) add(ops::kNoColumn, kZeros);
  }
  CHECK(places.order.size() <= size);
  places.order.resize(size, ops::kNoColumn);
  places.columns.resize(size, kZeros);
  return places;
}

// Columns of a tensor at other places, zeros among them.
class PlacedReader final : public artifact::TensorReader {
 public:
  PlacedReader(WeightRecipe whole, DType dtype, std::vector<int32_t> columns)
      : whole_(std::move(whole)), dtype_(dtype), columns_(std::move(columns)) {}

  void Read(const TensorBlock& block, void* out) const override {
    const int64_t width = whole_.shape[1];
    std::vector<std::byte> rows(BytesOf(dtype_, kRowsReadAtOnce * width));
    auto* to = static_cast<std::byte*>(out);
    for (int64_t row = 0; row < block.num_rows; row += kRowsReadAtOnce) {
      const int64_t num_rows = std::min(kRowsReadAtOnce, block.num_rows - row);
      CopyRows(whole_, block.row + row, num_rows, dtype_, rows.data());
      for (int64_t i = 0; i < num_rows; ++i)
        to = Place(rows.data(), i * width, block.column, block.num_columns, to);
    }
  }

 private:
  std::byte* Place(const std::byte* rows, int64_t first, int64_t column, int64_t n,
                   std::byte* to) const {
    const auto place = [&](int64_t j) { return columns_[static_cast<size_t>(column + j)]; };
    if (dtype_ == DType::kI4) {
      const auto code = [&](int64_t j) {
        return place(j) == kZeros ? 0 : LoadInt4(rows, first + place(j));
      };
      for (int64_t j = 0; j < n; j += 2) *to++ = std::byte{PackInt4(code(j), code(j + 1))};
      return to;
    }
    const size_t size = SizeOf(dtype_);
    for (int64_t j = 0; j < n; ++j, to += size) {
      if (place(j) == kZeros)
        std::memset(to, 0, size);
      else
        std::memcpy(to, rows + static_cast<size_t>(first + place(j)) * size, size);
    }
    return to;
  }

  WeightRecipe whole_;
  DType dtype_;
  std::vector<int32_t> columns_;
};

class PartOrderReader final : public artifact::TensorReader {
 public:
  explicit PartOrderReader(std::vector<int32_t> order) : order_(std::move(order)) {}

  void Read(const TensorBlock& block, void* out) const override {
    std::memcpy(out, order_.data() + block.row,
                static_cast<size_t>(block.num_rows) * sizeof(int32_t));
  }

 private:
  std::vector<int32_t> order_;
};

WeightRecipe RecipeOfPart(const WeightSlot& slot, DType dtype, const Shape& shape,
                          std::shared_ptr<const artifact::TensorReader> reader,
                          WeightSource& source) {
  const StoredTensor& part = source.read_tensors.emplace_back(StoredTensor{
      .name = slot.name, .dtype = dtype, .shape = shape, .data = {}, .reader = std::move(reader)});
  return {.shape = shape,
          .parts = {{.tensor = &part,
                     .num_rows = shape[0],
                     .num_columns = shape.rank() == 1 ? 1 : shape[1]}}};
}

bool HasEachOnce(std::span<const int32_t> order) {
  std::vector<bool> is_found(order.size());
  for (const int32_t column : order) {
    const auto at = static_cast<size_t>(column);
    if (column < 0 || at >= order.size() || is_found[at]) return false;
    is_found[at] = true;
  }
  return true;
}

}  // namespace

bool IsOrderedByColumns(const WeightSlot& slot) {
  return slot.form.has_order && (slot.is_quantized || IsOfMatrix(slot)) &&
         IsCutByColumns(StemOfSlot(slot));
}

void SetFormsOfOrderedParts(const artifact::RankMapping& ranks, model::ModelConfig& config) {
  if (ranks.tp_size == 1) return;
  for (auto& [stem, form] : config.slot_forms) {
    if (!form.has_order || !IsCutByColumns(stem)) continue;
    form.columns =
        static_cast<int>(ColumnsOfPart(InFeatures(stem, config), form.group_size, ranks.tp_size));
    form.group_size = ops::kGroupStep;
  }
}

Result<WeightRecipe> OrderedPart(const WeightSlot& slot, const artifact::RankMapping& ranks,
                                 int tp_rank, WeightSource& source) {
  const WeightRecipe& of_order = source.recipes.at(StemOfSlot(slot) + ".column_order");
  const WeightRecipe& whole = source.recipes.at(slot.name);
  const int64_t group_size = slot.form.group_size;
  std::vector<int32_t> order(static_cast<size_t>(of_order.shape[0]));
  CopyRows(of_order, 0, of_order.shape[0], DType::kI32, order.data());
  if (!HasEachOnce(order))
    return InvalidArgument(fmt::format("{}: {}.column_order: has not each column once",
                                       source.where, StemOfSlot(slot)));
  Places places = PlacesOf(order, group_size, ranks.tp_size, tp_rank);
  const auto num_columns = static_cast<int64_t>(places.order.size());
  if (slot.kind == WeightSlot::Kind::kOrder)
    return RecipeOfPart(slot, DType::kI32, {num_columns},
                        std::make_shared<PartOrderReader>(std::move(places.order)), source);
  const int64_t num_rows = whole.shape[0];
  if (slot.is_quantized)
    return RecipeOfPart(
        slot, slot.form.dtype, {num_rows, num_columns},
        std::make_shared<PlacedReader>(whole, slot.form.dtype, std::move(places.columns)), source);
  std::vector<int32_t> groups;  // of each group of the part, the whole weight's
  for (int64_t k = 0; k < num_columns; k += ops::kGroupStep) {
    const int32_t place = places.columns[static_cast<size_t>(k)];
    groups.push_back(place == kZeros ? kZeros : static_cast<int32_t>(place / group_size));
  }
  const auto num_groups = static_cast<int64_t>(groups.size());
  return RecipeOfPart(slot, DType::kF32, {num_rows, num_groups},
                      std::make_shared<PlacedReader>(whole, DType::kF32, std::move(groups)),
                      source);
}

}  // namespace inflight::builder
