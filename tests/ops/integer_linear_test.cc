// SPDX-License-Identifier: Apache-2.0
// Linears of int8 and int4 weights: the formula of ops/linear.h by hand and against the dequantised
// weights, and every table against the reference, bit for bit, since integer sums have no order.
#include "integer_linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace inflight::ops {
namespace {

Tensor Scratch(int64_t num_tokens, int64_t in_features) {
  return {DType::kU8,
          {static_cast<int64_t>(LinearScratchBytes(DType::kI8, num_tokens, in_features))}};
}

using testing::HasSubstr;

class IntegerLinearTest : public IntegerLinears {
 protected:
  // Rows of int4 have an even number of columns.
  std::vector<LinearCase> Cases() const {
    std::vector<LinearCase> cases = CpuLinearCases();
    for (LinearCase& c : cases)
      if (weights() == DType::kI4) c.in_features += c.in_features % 2;
    return cases;
  }
  IntegerWeight Some(int64_t rows, int64_t columns, uint64_t seed) const {
    return IntegerWeight::Some({.dtype = weights()}, rows, columns, seed);
  }
};

// The largest magnitude is 127, so that r = s_x = 1: q = (1, -2, 0, 127), one half going to the
// even zero. int8 row 0: (1 - 4 + 0 - 16256) / 2 + 1/4. Row 1: (-128 - 254 + 0 + 0) / 4 - 1.
// int4 row 0: (1 - 4 + 0 - 1016) / 2 + 1/4. Row 1: (-8 - 14 + 0 + 0) / 4 - 1. All exact.
TEST_P(IntegerLinearTest, HandCheckedCase) {
  const Tensor x = Tensor::Of(activations(), {1, 4}, {1, -2, 0.5F, 127});
  const Tensor bias = Tensor::Of(DType::kF32, {2}, {0.25F, -1});
  const bool is_int4 = weights() == DType::kI4;
  const std::vector<int8_t> elements = is_int4
                                           ? std::vector<int8_t>{1, 2, 3, -8, -8, 7, 5, 0}
                                           : std::vector<int8_t>{1, 2, 3, -128, -128, 127, 5, 0};
  const IntegerWeight w(weights(), 2, 4, elements, {0.5F, 0.25F});
  const std::vector<float> want =
      is_int4 ? std::vector<float>{-509.25F, -6.5F} : std::vector<float>{-8129.25F, -96.5F};
  for (const OpTable& table : CpuOpTables(shape_)) {
    LinearParams params = {
        .x = {.values = x.view()}, .weight = w.weight, .bias = bias.view(), .y = {}};
    EXPECT_EQ(Run(table, params), want) << table.name;
    params.activation = ActivationKind::kRelu;
    EXPECT_EQ(Run(table, params), (std::vector<float>{0, 0})) << table.name;
  }
}

// Rows of zeros and of nothing but the smallest numbers give the bias; infinity and NaN give NaN in
// their own row alone.
TEST_P(IntegerLinearTest, RowsWithoutAScale) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float tiny = std::numeric_limits<float>::min() / 4;
  const Tensor x = Tensor::Of(activations(), {5, 2},
                              {0, -0.0F, 3, infinity, std::nanf(""), 2, tiny, -tiny, 127, 1});
  const Tensor bias = Tensor::Of(DType::kF32, {1}, {0.5F});
  const IntegerWeight w(weights(), 1, 2, {2, -3}, {1});
  for (const OpTable& table : CpuOpTables(shape_)) {
    const auto y =
        Run(table, {.x = {.values = x.view()}, .weight = w.weight, .bias = bias.view(), .y = {}});
    EXPECT_EQ(y[0], 0.5F) << table.name;
    EXPECT_TRUE(std::isnan(y[1])) << table.name;
    EXPECT_TRUE(std::isnan(y[2])) << table.name;
    EXPECT_EQ(y[3], 0.5F) << table.name;
    EXPECT_EQ(y[4], 251.5F) << table.name;
  }
}

// Every product at its largest, of either sign, so that sums of 16 bits would saturate, and of 32
// nearly do: 131072 * 127 * 128 = 2^31 - 2^24.
TEST_P(IntegerLinearTest, TheLargestSumsAreExact) {
  for (const int element :
       {-IntegerWeight::RangeOf(weights()), IntegerWeight::RangeOf(weights()) - 1}) {
    for (const int64_t size : {int64_t{8192}, kMaxInt8Features}) {
      const std::vector<int8_t> elements(static_cast<size_t>(2 * size),
                                         static_cast<int8_t>(element));
      const IntegerWeight w(weights(), 2, size, elements, {1, 1});
      std::vector<float> values(static_cast<size_t>(2 * size), -127);
      std::fill_n(values.begin(), size, 127.0F);
      const Tensor x = Tensor::Of(activations(), {2, size}, values);
      const auto sum = static_cast<float>(size * 127 * element);
      for (const OpTable& table : CpuOpTables(shape_))
        EXPECT_EQ(Run(table, {.x = {.values = x.view()}, .weight = w.weight, .bias = {}, .y = {}}),
                  (std::vector<float>{sum, sum, -sum, -sum}))
            << table.name << " " << size << " " << element;
    }
  }
}

// What rounding activations may change: half a step on each, so (s_x / 2) sum_k |w[n, k]|, and a
// few roundings of float32 (r, x r, s_x and the three of the result) of the sum of magnitudes.
TEST_P(IntegerLinearTest, TheReferenceStaysNearTheDequantisedWeights) {
  for (const LinearCase& c : Cases()) {
    const Tensor x = Tensor::Random(activations(), {c.num_tokens, c.in_features}, 7);
    const IntegerWeight w = Some(c.out_features, c.in_features, 8);
    const auto got =
        Run(ReferenceTable(), {.x = {.values = x.view()}, .weight = w.weight, .bias = {}, .y = {}});
    std::vector<float> want;
    std::vector<double> bound;
    for (int64_t t = 0; t < c.num_tokens; ++t) {
      double largest = 0;
      for (int64_t k = 0; k < c.in_features; ++k)
        largest = std::max(largest, std::abs(double{x.Get(t * c.in_features + k)}));
      for (int64_t n = 0; n < c.out_features; ++n) {
        double sum = 0;
        double magnitudes = 0;
        for (int64_t k = 0; k < c.in_features; ++k) {
          sum += x.Get(t * c.in_features + k) * w.Value(n, k);
          magnitudes += std::abs(w.Value(n, k));
        }
        want.push_back(static_cast<float>(sum));
        bound.push_back(magnitudes * largest * (0.5 / 127 + 8 * kUnit));
      }
    }
    EXPECT_TRUE(Within(got, want, bound)) << c.name;
  }
}

TEST_P(IntegerLinearTest, EveryTableGivesTheBitsOfTheReference) {
  for (const LinearCase& c : Cases()) {
    const Tensor x =
        Tensor::Random(activations(), {c.num_tokens, c.in_features}, 17, c.offset_elements);
    const IntegerWeight w = Some(c.out_features, c.in_features, 18);
    const Tensor bias = Tensor::Random(DType::kF32, {c.out_features}, 19, c.offset_elements);
    LinearParams params = {.x = {.values = x.view()},
                           .weight = w.weight,
                           .bias = c.bias ? bias.view() : TensorView{},
                           .y = {}};
    const auto want = Run(ReferenceTable(), params, c.y_dtype);
    for (const OpTable& table : VectorTables(shape_))
      EXPECT_TRUE(SameBits(Run(table, params, c.y_dtype, c.offset_elements), want))
          << table.name << " " << c.name;
  }
}

TEST_P(IntegerLinearTest, GatedLinearOfEveryTableGivesTheBitsOfTheReference) {
  for (const LinearCase& c : Cases()) {
    const Tensor x = Tensor::Random(activations(), {c.num_tokens, c.in_features}, 27);
    const IntegerWeight gate = Some(c.out_features, c.in_features, 28);
    const IntegerWeight up = Some(c.out_features, c.in_features, 29);
    const Tensor bias = Tensor::Random(DType::kF32, {c.out_features}, 30);
    const Tensor scratch = Scratch(c.num_tokens, c.in_features);
    const auto run = [&](const OpTable& table) {
      const Tensor y(c.y_dtype, {c.num_tokens, c.out_features});
      EXPECT_EQ(table.gated_linear({.x = {.values = x.view()},
                                    .gate = gate.weight,
                                    .up = up.weight,
                                    .gate_bias = c.bias ? bias.view() : TensorView{},
                                    .activation = ActivationKind::kRelu,
                                    .y = y.view(),
                                    .scratch = scratch.view()},
                                   stream_),
                Status::Ok());
      return y.ToFloats();
    };
    const auto want = run(ReferenceTable());
    for (const OpTable& table : VectorTables(shape_))
      EXPECT_TRUE(SameBits(run(table), want)) << table.name << " " << c.name;
  }
}

TEST_P(IntegerLinearTest, LmHeadReadsTheChosenRows) {
  const Tensor x = Tensor::Random(activations(), {9, 96}, 3);
  const IntegerWeight w = Some(131, 96, 4);
  const std::vector<int> chosen = {8, 0, 0, 5};
  const Tensor rows = Tensor::Int32(chosen);
  for (const OpTable& table : CpuOpTables(shape_)) {
    const auto all =
        Run(table, {.x = {.values = x.view()}, .weight = w.weight, .bias = {}, .y = {}});
    const Tensor logits(DType::kF32, {4, 131});
    const Tensor scratch = Scratch(4, 96);
    ASSERT_EQ(table.lm_head({.x = {.values = x.view()},
                             .rows = rows.view(),
                             .weight = w.weight,
                             .bias = {},
                             .logits = logits.view(),
                             .scratch = scratch.view()},
                            stream_),
              Status::Ok());
    std::vector<float> want;
    for (const int row : chosen)
      want.insert(want.end(), all.begin() + row * 131, all.begin() + (row + 1) * 131);
    EXPECT_TRUE(SameBits(logits.ToFloats(), want)) << table.name;
  }
}

TEST_P(IntegerLinearTest, ARowIsTheSameAloneAndInABatch) {
  constexpr int64_t kSize = 1500;
  const Tensor x = Tensor::Random(activations(), {67, kSize}, 5);
  const IntegerWeight w = Some(130, kSize, 6);
  for (const OpTable& table : VectorTables(shape_)) {
    LinearParams params = {.x = {.values = x.view()}, .weight = w.weight, .bias = {}, .y = {}};
    const auto together = Run(table, params);
    for (const int64_t t : {0, 1, 33, 66}) {
      params.x.values = {
          x.view().as<std::byte>() + static_cast<size_t>(t * kSize) * SizeOf(activations()),
          activations(),
          {1, kSize}};
      const std::vector<float> row(together.begin() + t * 130, together.begin() + (t + 1) * 130);
      EXPECT_TRUE(SameBits(Run(table, params), row)) << table.name << " " << t;
    }
  }
}

// Weights of a checkpoint's own layout are for the reference alone.
TEST_P(IntegerLinearTest, TheReferenceReadsRowMajorWeightsToo) {
  const int64_t size = weights() == DType::kI4 ? 38 : 37;
  const Tensor x = Tensor::Random(activations(), {3, size}, 5);
  const IntegerWeight packed = Some(70, size, 6);
  const IntegerWeight plain({.dtype = weights()}, 70, size, packed.elements, packed.scales, {},
                            WeightLayout::kRowMajor);
  const auto run = [&](const IntegerWeight& w) {
    return Run(ReferenceTable(),
               {.x = {.values = x.view()}, .weight = w.weight, .bias = {}, .y = {}});
  };
  EXPECT_TRUE(SameBits(run(plain), run(packed)));
}

TEST_P(IntegerLinearTest, WhatIsMissingIsNamed) {
  const Tensor x = Tensor::Random(activations(), {2, 16}, 1);
  const Tensor y(DType::kF32, {2, 8});
  const Tensor scratch = Scratch(2, 16);
  const IntegerWeight w = Some(8, 16, 1);
  const bool is_int4 = weights() == DType::kI4;
  for (const OpTable& table : CpuOpTables(shape_)) {
    LinearParams params = {
        .x = {.values = x.view()}, .weight = w.weight, .bias = {}, .y = y.view()};
    EXPECT_EQ(table.linear(params, stream_).message(),
              "scratch: got no tensor at 0x0, needed uint8 [144] at a multiple of 64");
    params.scratch = scratch.view();
    params.weight.scales = nullptr;
    EXPECT_THAT(table.linear(params, stream_).message(),
                HasSubstr(is_int4 ? "weight: got int4 panel64_nibbles [8, 16]"
                                  : "weight: got int8 panel64_vnni4 [8, 16]"));
    params.weight = w.weight;
    params.weight.in_features = kMaxInt8Features + 1;
    EXPECT_THAT(table.linear(params, stream_).message(), HasSubstr("at most 131072 columns"));
    params.weight.in_features = 15;
    EXPECT_THAT(table.linear(params, stream_).message(),
                HasSubstr(is_int4 ? "at most 131072 columns, an even number" : "x: got"));
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, IntegerLinearTest, IntegerLinears::All(), IntegerLinears::NameOf);

}  // namespace
}  // namespace inflight::ops
