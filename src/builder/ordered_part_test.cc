// SPDX-License-Identifier: Apache-2.0
// Parts of a linear in act-order: what each rank holds stands for the numbers of the whole weight's
// columns that it reads, each of them once.
#include "builder/ordered_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>

#include "builder/rank_source.h"
#include "model/families/families.h"
#include "tensor/element.h"

namespace inflight::builder {
namespace {

using model::WeightSlot;
using testing::HasSubstr;

constexpr int64_t kOrderedRows = 40;
constexpr int64_t kOrderedInner = 96;
constexpr const char* kOrderedProj = "transformer.layers.0.mlp.proj";

// Llama with one layer, hidden 40, whose mlp.proj has an order.
model::ModelConfig OrderedLlama(const model::LinearForm& form) {
  model::ModelConfig config = model::FamilyOf("LlamaForCausalLM").value()->config;
  config.dtype = DType::kF32;
  config.vocab_size = 10;
  config.hidden_size = kOrderedRows;
  config.num_layers = 1;
  config.num_heads = config.num_kv_heads = 4;
  config.head_dim = 8;
  config.intermediate_size = kOrderedInner;
  config.max_position_embeddings = 64;
  config.tied_embeddings = false;
  config.quant_algo = model::QuantAlgo::kMixedPrecision;
  config.slot_forms = {{kOrderedProj, form}};
  return config;
}

// A source that holds what mlp.proj has, with known numbers.
class OrderedSource {
 public:
  OrderedSource(const model::LinearForm& form, std::vector<int32_t> columns)
      : order(std::move(columns)) {
    source.config = OrderedLlama(form);
    source.where = "dir";
    const int64_t num_groups = kOrderedInner / form.group_size;
    codes.resize(BytesOf(form.dtype, kOrderedRows * kOrderedInner));
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 89 + i / 7);
    for (int64_t i = 0; i < kOrderedRows * num_groups; ++i) {
      scales.push_back(0.25F + static_cast<float>(i) / 64);
      offsets.push_back(3 - static_cast<float>(i) / 16);
    }
    Add(".weight", form.dtype, {kOrderedRows, kOrderedInner}, std::as_bytes(std::span(codes)));
    Add(".weights_scaling_factor", DType::kF32, {kOrderedRows, num_groups},
        std::as_bytes(std::span(scales)));
    if (form.has_offsets)
      Add(".zero", DType::kF32, {kOrderedRows, num_groups}, std::as_bytes(std::span(offsets)));
    Add(".column_order", DType::kI32, {kOrderedInner}, std::as_bytes(std::span(order)));
  }

  WeightSource source;
  std::vector<std::byte> codes;
  std::vector<float> scales, offsets;
  std::vector<int32_t> order;

 private:
  void Add(const std::string& end, DType dtype, const Shape& shape,
           std::span<const std::byte> data) {
    const auto& tensor = source.read_tensors.emplace_back(artifact::StoredTensor{
        .name = kOrderedProj + end, .dtype = dtype, .shape = shape, .data = data});
    source.recipes[kOrderedProj + end] = {
        .shape = shape,
        .parts = {{.tensor = &tensor,
                   .num_rows = shape[0],
                   .num_columns = shape.rank() == 1 ? 1 : shape[1]}}};
  }
};

// Numbers of a linear as recipes have it: rows by the columns of x, NaN where none is; a
// further column for each element of no column, whose code is wanted.
struct OrderedNumbers {
  std::vector<std::vector<float>> rows;
  int num_zeros = 0;
};

float OrderedCodeOf(DType dtype, const std::vector<std::byte>& codes, int64_t i) {
  return static_cast<float>(dtype == DType::kI4 ? LoadInt4(codes.data(), i)
                                                : LoadAs<int8_t>(codes.data(), i));
}

OrderedNumbers OrderedNumbersOf(const WeightSource& source, int64_t num_inputs) {
  const model::LinearForm& form = source.config.slot_forms.at(kOrderedProj);
  const auto read = [&](const std::string& end, DType dtype) {
    const WeightRecipe& recipe = source.recipes.at(kOrderedProj + end);
    std::vector<std::byte> bytes(BytesOf(dtype, recipe.shape.num_elements()));
    CopyRows(recipe, 0, recipe.shape[0], dtype, bytes.data());
    return bytes;
  };
  const auto codes = read(".weight", form.dtype);
  const auto scales = read(".weights_scaling_factor", DType::kF32);
  const auto offsets = form.has_offsets ? read(".zero", DType::kF32) : std::vector<std::byte>();
  const auto order = read(".column_order", DType::kI32);
  const int64_t columns = source.recipes.at(std::string(kOrderedProj) + ".weight").shape[1];
  OrderedNumbers numbers;
  for (int64_t n = 0; n < kOrderedRows; ++n) {
    std::vector<float> row(static_cast<size_t>(num_inputs), NAN);
    for (int64_t k = 0; k < columns; ++k) {
      const int32_t column = LoadAs<int32_t>(order.data(), k);
      const float code = OrderedCodeOf(form.dtype, codes, n * columns + k);
      if (column < 0) {
        EXPECT_EQ(code, 0) << k;
        numbers.num_zeros += n == 0;
        continue;
      }
      const int64_t group = n * (columns / form.group_size) + k / form.group_size;
      float& value = row.at(static_cast<size_t>(column));
      EXPECT_TRUE(std::isnan(value)) << "twice: " << column;
      value = std::fma(code, LoadAs<float>(scales.data(), group),
                       form.has_offsets ? LoadAs<float>(offsets.data(), group) : 0.0F);
    }
    numbers.rows.push_back(std::move(row));
  }
  return numbers;
}

// 5 k + 3 of 96 columns: each rank has some of each group.
std::vector<int32_t> MixedOrder() {
  std::vector<int32_t> order;
  for (int32_t k = 0; k < kOrderedInner; ++k) order.push_back((5 * k + 3) % kOrderedInner);
  return order;
}

void ExpectOrderedParts(const model::LinearForm& form, const std::vector<int32_t>& order,
                        int tp_size) {
  OrderedSource ordered(form, order);
  WeightSource& source = ordered.source;
  const OrderedNumbers whole = OrderedNumbersOf(source, kOrderedInner);
  const model::ModelConfig config = source.config;
  const auto recipes = source.recipes;
  const Sharding sharding = {.ranks = {.tp_size = tp_size}, .num_layers = {1}};
  ASSERT_EQ(CheckSharding(config, sharding), Status::Ok());
  const int64_t own = kOrderedInner / tp_size;
  for (int rank = 0; rank < tp_size; ++rank) {
    SCOPED_TRACE(rank);
    source.config = config;
    source.recipes = recipes;
    ASSERT_EQ(TakeRank(sharding, rank, DeviceKind::kCpu, source), Status::Ok());
    ASSERT_EQ(model::Validate(source.config), Status::Ok());
    // The slots of the rank's configuration are what its recipes make.
    model::DecoderWeights unused;
    for (const WeightSlot& slot : model::WeightSlots(source.config, unused))
      if (slot.name.starts_with(kOrderedProj)) {
        EXPECT_EQ(source.recipes.at(slot.name).shape, slot.shape) << slot.name;
      }
    const OrderedNumbers part = OrderedNumbersOf(source, own);
    const int64_t columns = source.recipes.at(std::string(kOrderedProj) + ".weight").shape[1];
    EXPECT_EQ(part.num_zeros, columns - own);
    for (size_t n = 0; n < kOrderedRows; ++n)
      for (int64_t k = 0; k < own; ++k)
        ASSERT_EQ(part.rows[n][static_cast<size_t>(k)],
                  whole.rows[n][static_cast<size_t>(rank * own + k)])
            << n << ", " << k;
  }
}

TEST(OrderedPartTest, RanksHaveTheNumbersOfTheirColumns) {
  std::vector<int32_t> as_it_is, reversed;
  for (int32_t k = 0; k < kOrderedInner; ++k) {
    as_it_is.push_back(k);
    reversed.push_back(static_cast<int32_t>(kOrderedInner) - 1 - k);
  }
  for (const DType dtype : {DType::kI4, DType::kI8})
    for (const int group_size : {16, 32, 48, 96})
      for (const bool has_offsets : {false, true})
        for (const auto& order : {MixedOrder(), as_it_is, reversed})
          for (const int tp_size : {2, 4}) {
            SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " in groups of " << group_size
                                            << " on " << tp_size << " ranks");
            ExpectOrderedParts({.dtype = dtype,
                                .group_size = group_size,
                                .has_offsets = has_offsets,
                                .has_order = true},
                               order, tp_size);
          }
}

// 96 columns in three groups of 32, of which rank 0 of 2 reads columns 0 to 47. By hand, in
// MixedOrder: element k is of column 5 k + 3, less 96 where it is above: of k = 0 to 8 those are
// 3, 8, ... 43, the rank's own; 9 to 18 give 48 to 93; and so on.
TEST(OrderedPartTest, GroupsAreFilledUpWithZeros) {
  OrderedSource ordered({.dtype = DType::kI4, .group_size = 32, .has_order = true}, MixedOrder());
  WeightSource& source = ordered.source;
  ASSERT_EQ(TakeRank({.ranks = {.tp_size = 2}, .num_layers = {1}}, 0, DeviceKind::kCpu, source),
            Status::Ok());
  const model::LinearForm& form = source.config.slot_forms.at(kOrderedProj);
  EXPECT_EQ(form.columns, 96);  // 48 and at most 15 zeros behind each of 3 groups: 93, rounded up
  EXPECT_EQ(form.group_size, 16);
  const WeightRecipe& recipe = source.recipes.at(std::string(kOrderedProj) + ".column_order");
  std::vector<int32_t> order(96);
  CopyRows(recipe, 0, 96, DType::kI32, order.data());
  std::vector<int32_t> want;
  for (int32_t group = 0; group < 3; ++group) {
    for (int32_t k = 32 * group; k < 32 * (group + 1); ++k)
      if ((5 * k + 3) % 96 < 48) want.push_back((5 * k + 3) % 96);
    while (want.size() % 16 != 0) want.push_back(-1);
  }
  EXPECT_THAT(std::vector<int32_t>(want.begin(), want.begin() + 9),
              testing::ElementsAre(3, 8, 13, 18, 23, 28, 33, 38, 43));
  want.resize(96, -1);
  EXPECT_EQ(order, want);
}

TEST(OrderedPartTest, WhatIsNoOrderIsRefused) {
  std::vector<int32_t> order = MixedOrder();
  for (const int32_t bad : {-1, 96, order[1]}) {
    order[0] = bad;
    OrderedSource ordered({.dtype = DType::kI8, .group_size = 32, .has_order = true}, order);
    EXPECT_THAT(
        TakeRank({.ranks = {.tp_size = 2}, .num_layers = {1}}, 1, DeviceKind::kCpu, ordered.source)
            .message(),
        HasSubstr("dir: transformer.layers.0.mlp.proj.column_order: has not each column once"));
  }
}

// A checkpoint has the whole order alone.
TEST(OrderedPartTest, CheckpointsOfRanksAreRefused) {
  const model::ModelConfig config =
      OrderedLlama({.dtype = DType::kI4, .group_size = 32, .has_order = true});
  EXPECT_EQ(CheckFiles(config, {.ranks = {.tp_size = 1, .pp_size = 1}}), Status::Ok());
  EXPECT_THAT(CheckFiles(config, {.ranks = {.tp_size = 2}}).message(),
              HasSubstr("tp_size: got 2, columns of transformer.layers.0.mlp.proj have an order"));
}

}  // namespace
}  // namespace inflight::builder
