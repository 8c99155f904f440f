// SPDX-License-Identifier: Apache-2.0
// Linears of integer weights with groups: the formula of ops/linear.h by hand, in double, and
// against the dequantised weights; and every table against the reference, bit for bit, whatever the
// number of rows and threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "integer_linear.h"

namespace inflight::ops {
namespace {

using testing::HasSubstr;

// A multiple of `size` that is not below n.
int64_t RoundedUp(int64_t n, int64_t size) { return (n + size - 1) / size * size; }

class GroupedLinearTest : public IntegerLinears {
 protected:
  IntegerForm Form(int64_t group_size, bool has_offsets) const {
    return {weights(), group_size, has_offsets};
  }
  static LinearParams Params(const Tensor& x, const IntegerWeight& w, const TensorView& bias = {}) {
    return {.x = {.values = x.view()}, .weight = w.weight, .bias = bias, .y = {}};
  }
};

// Two groups of one row. The first's largest magnitude is 127, so that r = s_x = 1 and
// q = (1, -2, 0, 127); the second's is 254, so that r = 1/2, s_x = 2 and q = (127, 1, 0, -127), one
// half going to the even zero. With codes (1, 2, 3, -8) and (1, 4, 7, 2), scales 1/2 and 1/4,
// offsets 1/8 and -1, and a bias of 1/4:
//   (1 - 4 - 1016) / 2 = -509.5, and 126 / 8 = 15.75
//   (127 + 4 - 254) 2 / 4 = -61.5, and 1 * 2 * -1 = -2
TEST_P(GroupedLinearTest, HandCheckedCase) {
  std::vector<float> x_values(32, 0);
  std::vector<int8_t> elements(32, 5);
  std::ranges::copy(std::vector<float>{1, -2, 0.5F, 127}, x_values.begin());
  std::ranges::copy(std::vector<float>{254, 2, 1, -254}, x_values.begin() + 16);
  std::ranges::copy(std::vector<int8_t>{1, 2, 3, -8}, elements.begin());
  std::ranges::copy(std::vector<int8_t>{1, 4, 7, 2}, elements.begin() + 16);
  const Tensor x = Tensor::Of(activations(), {1, 32}, x_values);
  const Tensor bias = Tensor::Of(DType::kF32, {1}, {0.25F});
  const WeightLayout layout = CpuWeightLayout(weights());
  const IntegerWeight plain(Form(16, false), 1, 32, elements, {0.5F, 0.25F}, {}, layout);
  const IntegerWeight moved(Form(16, true), 1, 32, elements, {0.5F, 0.25F}, {0.125F, -1}, layout);
  for (const OpTable& table : CpuOpTables(shape_)) {
    EXPECT_EQ(Run(table, Params(x, plain, bias.view())), std::vector<float>{-570.75F})
        << table.name;
    EXPECT_EQ(Run(table, Params(x, moved, bias.view())), std::vector<float>{-557}) << table.name;
  }
}

// Of the rows' two groups one is: zeros, nothing but the smallest numbers, infinity, NaN, numbers.
// The first two add nothing; infinity and NaN take their own row alone.
TEST_P(GroupedLinearTest, GroupsWithoutAScale) {
  const float firsts[] = {0, std::numeric_limits<float>::min() / 4,
                          std::numeric_limits<float>::infinity(), std::nanf(""), 127};
  const std::vector<int8_t> elements(2 * 32, 1);
  for (const int64_t bad_group : {0, 1}) {
    std::vector<float> values(5 * 32, 0);
    for (size_t t = 0; t < 5; ++t) {
      values[t * 32 + static_cast<size_t>(16 * bad_group)] = firsts[t];
      values[t * 32 + static_cast<size_t>(16 * (1 - bad_group)) + 3] = 127;
    }
    const Tensor x = Tensor::Of(activations(), {5, 32}, values);
    const IntegerWeight w(Form(16, true), 2, 32, elements, {1, 1, 1, 1}, {2, 2, 2, 2},
                          CpuWeightLayout(weights()));
    for (const OpTable& table : CpuOpTables(shape_)) {
      const auto y = Run(table, Params(x, w));
      for (const size_t n : {0, 1}) {
        EXPECT_EQ(y[n], 381) << table.name;  // 127 (1 + 2)
        EXPECT_EQ(y[2 + n], 381) << table.name;
        EXPECT_TRUE(std::isnan(y[4 + n])) << table.name;
        EXPECT_TRUE(std::isnan(y[6 + n])) << table.name;
        EXPECT_EQ(y[8 + n], 762) << table.name;
      }
    }
  }
}

// One group of the widest row, every product at its largest: -131072 * 127 * 128 = 2^24 - 2^31.
TEST_P(GroupedLinearTest, TheLargestSumsAreExact) {
  const int64_t size = kMaxInt8Features;
  const int element = -IntegerWeight::RangeOf(weights());
  const IntegerWeight w(
      Form(size, true), 1, size,
      std::vector<int8_t>(static_cast<size_t>(size), static_cast<int8_t>(element)), {1}, {0.5F},
      CpuWeightLayout(weights()));
  const Tensor x =
      Tensor::Of(activations(), {1, size}, std::vector<float>(static_cast<size_t>(size), 127));
  const auto sum = static_cast<float>(size * 127 * element);
  const float want = std::fma(static_cast<float>(size * 127), 0.5F, sum);
  for (const OpTable& table : CpuOpTables(shape_))
    EXPECT_EQ(Run(table, Params(x, w)), std::vector<float>{want}) << table.name;
}

// The sums of one result in double: of the documented arithmetic, of the unrounded activations,
// and of magnitudes.
struct PlainSums {
  double documented = 0;
  double dequantised = 0;
  double magnitude = 0;
  double rounding = 0;  // half a step of each activation
};

PlainSums PlainSumsOf(const Tensor& x, const IntegerWeight& w, int64_t t, int64_t n) {
  PlainSums sums;
  const int64_t columns = w.weight.in_features;
  const int64_t size = columns / w.weight.num_groups();
  for (int64_t first = 0; first < columns; first += size) {
    float largest = 0;
    for (int64_t k = first; k < first + size; ++k)
      largest = std::max(largest, std::abs(x.Get(t * columns + k)));
    const float inverse = 127.0F / largest;
    const double step = double{largest} / 127;
    for (int64_t k = first; k < first + size; ++k) {
      const float value = x.Get(t * columns + k);
      sums.documented += std::nearbyint(value * inverse) * step * w.Value(n, k);
      sums.dequantised += double{value} * w.Value(n, k);
      sums.magnitude += largest * (std::abs(w.Product(n, k)) + std::abs(w.Offset(n, k)));
      sums.rounding += step / 2 * std::abs(w.Value(n, k));
    }
  }
  return sums;
}

// What is left beside the documented arithmetic in double are two roundings of each scale, of each
// product of a group, and of each of the sums.
TEST_P(GroupedLinearTest, TheReferenceIsTheFormulaInDouble) {
  for (const int64_t size : {16, 32, 64, 96, 128}) {
    for (const bool has_offsets : {false, true}) {
      const int64_t columns = 3 * size;
      const Tensor x = Tensor::Random(activations(), {3, columns}, 7);
      const auto w = IntegerWeight::Some(Form(size, has_offsets), 70, columns, 8);
      const auto got = Run(ReferenceTable(), Params(x, w));
      std::vector<float> documented, dequantised;
      std::vector<double> bound, loose_bound;
      for (int64_t t = 0; t < 3; ++t)
        for (int64_t n = 0; n < 70; ++n) {
          const PlainSums sums = PlainSumsOf(x, w, t, n);
          documented.push_back(static_cast<float>(sums.documented));
          dequantised.push_back(static_cast<float>(sums.dequantised));
          bound.push_back(16 * kUnit * sums.magnitude);
          loose_bound.push_back(sums.rounding + 16 * kUnit * sums.magnitude);
        }
      EXPECT_TRUE(Within(got, documented, bound)) << size << " " << has_offsets;
      EXPECT_TRUE(Within(got, dequantised, loose_bound)) << size << " " << has_offsets;
    }
  }
}

TEST_P(GroupedLinearTest, EveryTableGivesTheBitsOfTheReference) {
  bool has_offsets = false;
  for (const LinearCase& c : CpuLinearCases()) {
    for (const int64_t size : {16, 32, 48, 64, 128}) {
      if (c.in_features > 2048 && size != 128) continue;  // the reference takes its time
      has_offsets = !has_offsets;
      const int64_t columns = RoundedUp(c.in_features, size);
      const Tensor x =
          Tensor::Random(activations(), {c.num_tokens, columns}, 17, c.offset_elements);
      const auto w = IntegerWeight::Some(Form(size, has_offsets), c.out_features, columns, 18);
      const Tensor bias = Tensor::Random(DType::kF32, {c.out_features}, 19, c.offset_elements);
      LinearParams params = Params(x, w, c.bias ? bias.view() : TensorView{});
      const auto want = Run(ReferenceTable(), params, c.y_dtype);
      for (const OpTable& table : VectorTables(shape_))
        EXPECT_TRUE(SameBits(Run(table, params, c.y_dtype, c.offset_elements), want))
            << table.name << " " << c.name << " " << size << " " << has_offsets;
    }
  }
}

// Any number of rows, and so any division into tiles and passes of a panel; one thread or three.
TEST_P(GroupedLinearTest, ARowIsTheSameInEveryBatchOnAnyThreads) {
  constexpr int64_t kRows = 70;
  const auto alone = Device::Cpu(1);
  Stream alone_stream(*alone);
  for (const auto& [size, columns] :
       {std::pair<int64_t, int64_t>{16, 48}, {32, 1600}, {128, 1408}, {1536, 3072}, {96, 96}}) {
    const Tensor x = Tensor::Random(activations(), {40, columns}, 5);
    const auto w = IntegerWeight::Some(Form(size, true), kRows, columns, 6);
    const auto want = Run(ReferenceTable(), Params(x, w));
    for (const OpTable& table : VectorTables(shape_)) {
      for (int64_t num_tokens = 1; num_tokens <= 40; ++num_tokens) {
        LinearParams params = Params(x, w);
        params.x.values.shape = {num_tokens, columns};
        const std::vector<float> first(want.begin(), want.begin() + num_tokens * kRows);
        EXPECT_TRUE(SameBits(Run(table, params), first))
            << table.name << " " << size << " " << num_tokens;
      }
      const Tensor scratch = ScratchOf(w.weight, 40);
      const Tensor y(DType::kF32, {40, kRows});
      LinearParams params = Params(x, w);
      params.scratch = scratch.view();
      params.y = y.view();
      ASSERT_EQ(table.linear(params, alone_stream), Status::Ok());
      EXPECT_TRUE(SameBits(y.ToFloats(), want)) << table.name << " " << size << " on one thread";
    }
  }
}

TEST_P(GroupedLinearTest, GatedLinearOfEveryTableGivesTheBitsOfTheReference) {
  for (const int64_t size : {16, 32, 64, 128, 384}) {
    for (const int num_tokens : {1, 3, 13}) {
      const Tensor x = Tensor::Random(activations(), {num_tokens, 384}, 27);
      // Offsets may be of one branch alone.
      const auto gate = IntegerWeight::Some(Form(size, true), 130, 384, 28);
      const auto up = IntegerWeight::Some(Form(size, num_tokens == 3), 130, 384, 29);
      const Tensor bias = Tensor::Random(DType::kF32, {130}, 30);
      const Tensor scratch = ScratchOf(gate.weight, num_tokens);
      const auto run = [&](const OpTable& table) {
        const Tensor y(activations(), {num_tokens, 130});
        EXPECT_EQ(table.gated_linear({.x = {.values = x.view()},
                                      .gate = gate.weight,
                                      .up = up.weight,
                                      .gate_bias = bias.view(),
                                      .activation = ActivationKind::kRelu,
                                      .y = y.view(),
                                      .scratch = scratch.view()},
                                     stream_),
                  Status::Ok());
        return y.ToFloats();
      };
      const auto want = run(ReferenceTable());
      for (const OpTable& table : VectorTables(shape_))
        EXPECT_TRUE(SameBits(run(table), want)) << table.name << " " << size << " " << num_tokens;
    }
  }
}

// Logits are those of the linear, scaled and capped.
TEST_P(GroupedLinearTest, LmHeadReadsTheChosenRows) {
  constexpr float kSoftcap = 30;
  const Tensor x = Tensor::Random(activations(), {9, 96}, 3);
  const auto w = IntegerWeight::Some(Form(32, true), 131, 96, 4);
  const std::vector<int> chosen = {8, 0, 0, 5};
  const Tensor rows = Tensor::Int32(chosen);
  for (const OpTable& table : CpuOpTables(shape_)) {
    const auto all = Run(table, Params(x, w));
    for (const float softcap : {0.0F, kSoftcap}) {
      const Tensor logits(DType::kF32, {4, 131});
      const Tensor scratch = ScratchOf(w.weight, 4 + 5);
      ASSERT_EQ(table.lm_head({.x = {.values = x.view()},
                               .rows = rows.view(),
                               .weight = w.weight,
                               .bias = {},
                               .logits = logits.view(),
                               .scratch = scratch.view(),
                               .scale = 0.5F,
                               .softcap = softcap},
                              stream_),
                Status::Ok());
      std::vector<float> want;
      std::vector<double> bound;
      for (const int row : chosen)
        for (int n = 0; n < 131; ++n) {
          const double half = all[static_cast<size_t>(row * 131 + n)] / 2;
          want.push_back(
              static_cast<float>(softcap == 0 ? half : softcap * std::tanh(half / softcap)));
          bound.push_back(softcap == 0 ? 1e-30 : 16 * kUnit * std::abs(half) + 1e-30);
        }
      EXPECT_TRUE(Within(logits.ToFloats(), want, bound)) << table.name << " " << softcap;
    }
  }
}

// Element k of every row is of column order[k]: the same as columns of x that were put in that
// order before, whatever the size of groups.
TEST_P(GroupedLinearTest, ColumnsMayHaveAnOrder) {
  for (const auto& [size, columns] :
       {std::pair<int64_t, int64_t>{16, 48}, {32, 96}, {64, 192}, {48, 96}, {128, 1408}}) {
    const Tensor x = Tensor::Random(activations(), {7, columns}, 41);
    std::vector<int32_t> order(static_cast<size_t>(columns));
    for (int64_t k = 0; k < columns; ++k)  // 5 has no factor in common with the columns
      order[static_cast<size_t>(k)] = static_cast<int32_t>((5 * k + 3) % columns);
    Tensor moved(activations(), {7, columns});
    for (int64_t t = 0; t < 7; ++t)
      for (int64_t k = 0; k < columns; ++k)
        moved.Set(t * columns + k, x.Get(t * columns + order[static_cast<size_t>(k)]));
    auto w = IntegerWeight::Some(Form(size, true), 70, columns, 42);
    std::vector<float> plain_row(static_cast<size_t>(columns)), row(plain_row.size());
    UnpackWeightRow(w.weight, 69, plain_row.data());
    const auto want = Run(ReferenceTable(), Params(moved, w));
    w.weight.order = order.data();
    for (const OpTable& table : CpuOpTables(shape_))
      EXPECT_TRUE(SameBits(Run(table, Params(x, w)), want)) << table.name << " " << size;
    UnpackWeightRow(w.weight, 69, row.data());
    for (size_t k = 0; k < row.size(); ++k)
      EXPECT_EQ(row[static_cast<size_t>(order[k])], plain_row[k]);
    LinearParams params = Params(x, w);
    params.weight.group_size = 0;
    params.weight.offsets = nullptr;
    const Tensor y(DType::kF32, {7, 70});
    params.y = y.view();
    EXPECT_THAT(ReferenceTable().linear(params, stream_).message(), HasSubstr("weight.order: got"));
  }
}

// Elements of kNoColumn are as if x were zero there, offsets too: the same as columns of x that
// were put in the order before, with zeros among them.
TEST_P(GroupedLinearTest, AnOrderMayHaveElementsOfNoColumn) {
  constexpr int64_t kInputs = 50, kColumns = 96;
  const Tensor x = Tensor::Random(activations(), {7, kInputs}, 43);
  std::vector<int32_t> order(kColumns, kNoColumn);
  for (int64_t k = 0; k < kInputs; ++k)  // 19 has no factor in common with 96
    order[static_cast<size_t>(19 * k % kColumns)] = static_cast<int32_t>(k);
  Tensor moved(activations(), {7, kColumns});
  for (int64_t t = 0; t < 7; ++t)
    for (int64_t k = 0; k < kColumns; ++k) {
      const int32_t column = order[static_cast<size_t>(k)];
      moved.Set(t * kColumns + k, column == kNoColumn ? 0 : x.Get(t * kInputs + column));
    }
  for (const int64_t size : {16, 32, 96}) {
    auto w = IntegerWeight::Some(Form(size, true), 70, kColumns, 44);
    const auto want = Run(ReferenceTable(), Params(moved, w));
    w.weight.order = order.data();
    w.weight.num_inputs = kInputs;
    for (const OpTable& table : CpuOpTables(shape_))
      EXPECT_TRUE(SameBits(Run(table, Params(x, w)), want)) << table.name << " " << size;
    std::vector<float> row(kInputs, NAN);
    UnpackWeightRow(w.weight, 69, row.data());
    for (const float value : row) EXPECT_FALSE(std::isnan(value));
    LinearParams params = Params(x, w);
    params.weight.order = nullptr;
    const Tensor y(DType::kF32, {7, 70});
    params.y = y.view();
    EXPECT_THAT(ReferenceTable().linear(params, stream_).message(),
                HasSubstr("weight.num_inputs: got 50 without an order"));
  }
}

// Weights of a checkpoint's own layout, with scales as they lie there, are for the reference alone.
TEST_P(GroupedLinearTest, TheReferenceReadsRowMajorWeightsToo) {
  const Tensor x = Tensor::Random(activations(), {3, 96}, 5);
  const auto packed = IntegerWeight::Some(Form(32, true), 70, 96, 6);
  const IntegerWeight plain(Form(32, true), 70, 96, packed.elements, packed.scales, packed.offsets,
                            WeightLayout::kRowMajor);
  EXPECT_TRUE(
      SameBits(Run(ReferenceTable(), Params(x, plain)), Run(ReferenceTable(), Params(x, packed))));
}

TEST_P(GroupedLinearTest, WhatDoesNotFitIsNamed) {
  const Tensor x = Tensor::Random(activations(), {2, 96}, 1);
  const Tensor y(DType::kF32, {2, 8});
  const auto w = IntegerWeight::Some(Form(32, true), 8, 96, 1);
  const Tensor scratch = ScratchOf(w.weight, 2);
  const Tensor small(DType::kU8, {static_cast<int64_t>(LinearScratchBytes(weights(), 2, 96))});
  for (const OpTable& table : CpuOpTables(shape_)) {
    LinearParams params = Params(x, w);
    params.y = y.view();
    params.scratch = small.view();
    EXPECT_THAT(table.linear(params, stream_).message(), HasSubstr("needed uint8 [432]"));
    params.scratch = scratch.view();
    for (const int64_t size : {-32, 8, 40, 64, 128}) {
      params.weight.group_size = size;
      EXPECT_THAT(table.linear(params, stream_).message(),
                  HasSubstr("weight.group_size: got " + std::to_string(size) +
                            " of 96 columns, needed a multiple of 16 that divides them"));
    }
    params.weight.group_size = 0;  // and offsets
    EXPECT_THAT(table.linear(params, stream_).message(), HasSubstr("weight.group_size: got 0"));
    GatedLinearParams gated = {.x = {.values = x.view()},
                               .gate = w.weight,
                               .up = w.weight,
                               .y = y.view(),
                               .scratch = scratch.view()};
    gated.up.group_size = 48;
    EXPECT_EQ(table.gated_linear(gated, stream_).message(),
              "up.group_size: got 48, needed 32 as gate");
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, GroupedLinearTest, IntegerLinears::All(), IntegerLinears::NameOf);

}  // namespace
}  // namespace inflight::ops
