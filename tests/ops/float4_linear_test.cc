// SPDX-License-Identifier: Apache-2.0
// Linears of float4 weights with an exponent for each group (MXFP4): the formula of ops/linear.h by
// hand and in double, and every table against the reference, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "integer_linear.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

using testing::HasSubstr;

constexpr DType kF4 = DType::kF4E2M1;
constexpr IntegerForm kForm = {kF4, 32};

class Float4LinearTest : public IntegerLinears {
 protected:
  static LinearParams Params(const Tensor& x, const IntegerWeight& w, const TensorView& bias = {}) {
    return {.x = {.values = x.view()}, .weight = w.weight, .bias = bias, .y = {}};
  }
};

// The table of OCP Microscaling Formats 1.0, 5.3.3: a sign, two bits of exponent, one of mantissa.
TEST(Float4, CodesStandForTheFormatsNumbers) {
  for (int code = 0; code < 16; ++code) {
    const int exponent = code >> 1 & 3;
    const int mantissa = code & 1;
    const double magnitude =
        exponent == 0 ? mantissa * 0.5 : std::ldexp(1 + mantissa * 0.5, exponent - 1);
    EXPECT_EQ(kTwiceE2M1[static_cast<size_t>(code)], (code < 8 ? 2 : -2) * magnitude) << code;
  }
  EXPECT_EQ(2 * HalfOfE8M0(std::byte{127}), 1);
  EXPECT_EQ(HalfOfE8M0(std::byte{0}), std::ldexp(1.0F, -128));
  EXPECT_EQ(HalfOfE8M0(std::byte{1}), std::ldexp(1.0F, -127));
  EXPECT_EQ(HalfOfE8M0(std::byte{254}), std::ldexp(1.0F, 126));
}

// Two groups of one row: in the first r = s_x = 1 and q = (1, -2, 0, 127), in the second r = 1/2,
// s_x = 2 and q = (127, 1, 0, -127). Elements are (1/2, 1, 3/2, -6) and (2, 3, 4, 6), powers of two
// 1/4 and 8, the bias 1/4:
//   (1/2 - 2 - 762) / 4 = -190.875 and (254 + 3 - 762) 2 * 8 = -8080
TEST_P(Float4LinearTest, HandCheckedCase) {
  std::vector<float> x_values(64, 0);
  std::vector<int8_t> twice(64, 3);
  std::ranges::copy(std::vector<float>{1, -2, 0.5F, 127}, x_values.begin());
  std::ranges::copy(std::vector<float>{254, 2, 1, -254}, x_values.begin() + 32);
  std::ranges::copy(std::vector<int8_t>{1, 2, 3, -12}, twice.begin());
  std::ranges::copy(std::vector<int8_t>{4, 6, 8, 12}, twice.begin() + 32);
  const Tensor x = Tensor::Of(activations(), {1, 64}, x_values);
  const Tensor bias = Tensor::Of(DType::kF32, {1}, {0.25F});
  const IntegerWeight w(kForm, 1, 64, twice, {0.125F, 4}, {}, CpuWeightLayout(kF4));
  EXPECT_EQ(w.weight.exponents[0], 125);
  EXPECT_EQ(w.weight.exponents[64], 130);
  for (const OpTable& table : CpuOpTables(shape_))
    EXPECT_EQ(Run(table, Params(x, w, bias.view())), std::vector<float>{-8270.625F}) << table.name;
}

// All exponents, also those of which the scale, or its product with that of x, is no normal number.
TEST_P(Float4LinearTest, EveryExponentCounts) {
  constexpr int64_t kRows = 255;
  std::vector<float> scales;
  for (int e = 0; e < kRows; ++e) scales.push_back(std::ldexp(1.0F, e - 128));
  const IntegerWeight w(kForm, kRows, 32, std::vector<int8_t>(kRows * 32, 12), scales, {},
                        CpuWeightLayout(kF4));
  std::vector<float> x_values(32, 0);
  x_values[5] = 127;
  const Tensor x = Tensor::Of(activations(), {1, 32}, x_values);
  for (const OpTable& table : CpuOpTables(shape_)) {
    const auto y = Run(table, Params(x, w));
    for (size_t n = 0; n < y.size(); ++n) EXPECT_EQ(y[n], 1524 * scales[n]) << table.name << n;
  }
}

TEST_P(Float4LinearTest, TheReferenceIsTheFormulaInDouble) {
  constexpr int64_t kColumns = 160;
  const Tensor x = Tensor::Random(activations(), {3, kColumns}, 7);
  const auto w = IntegerWeight::Some(kForm, 70, kColumns, 8);
  const auto got = Run(ReferenceTable(), Params(x, w));
  std::vector<float> want;
  std::vector<double> bound;
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t n = 0; n < 70; ++n) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t first = 0; first < kColumns; first += 32) {
        float largest = 0;
        for (int64_t k = first; k < first + 32; ++k)
          largest = std::max(largest, std::abs(x.Get(t * kColumns + k)));
        const float inverse = 127.0F / largest;
        for (int64_t k = first; k < first + 32; ++k) {
          sum += std::nearbyint(x.Get(t * kColumns + k) * inverse) * (double{largest} / 127) *
                 w.Value(n, k);
          magnitude += largest * std::abs(w.Value(n, k));
        }
      }
      want.push_back(static_cast<float>(sum));
      bound.push_back(16 * kUnit * magnitude);
    }
  EXPECT_TRUE(Within(got, want, bound));
}

TEST_P(Float4LinearTest, EveryTableGivesTheBitsOfTheReference) {
  for (const LinearCase& c : CpuLinearCases()) {
    if (c.in_features > 4096) continue;  // the reference takes its time
    const int64_t columns = (c.in_features + 31) / 32 * 32;
    const Tensor x = Tensor::Random(activations(), {c.num_tokens, columns}, 17, c.offset_elements);
    const auto w = IntegerWeight::Some(kForm, c.out_features, columns, 18);
    const Tensor bias = Tensor::Random(DType::kF32, {c.out_features}, 19, c.offset_elements);
    const LinearParams params = Params(x, w, c.bias ? bias.view() : TensorView{});
    const auto want = Run(ReferenceTable(), params, c.y_dtype);
    for (const OpTable& table : VectorTables(shape_))
      EXPECT_TRUE(SameBits(Run(table, params, c.y_dtype, c.offset_elements), want))
          << table.name << " " << c.name;
  }
}

TEST_P(Float4LinearTest, ARowIsTheSameInEveryBatch) {
  const Tensor x = Tensor::Random(activations(), {40, 1600}, 5);
  const auto w = IntegerWeight::Some(kForm, 70, 1600, 6);
  const auto want = Run(ReferenceTable(), Params(x, w));
  for (const OpTable& table : VectorTables(shape_))
    for (int64_t num_tokens = 1; num_tokens <= 40; ++num_tokens) {
      LinearParams params = Params(x, w);
      params.x.values.shape = {num_tokens, 1600};
      EXPECT_TRUE(SameBits(Run(table, params), {want.begin(), want.begin() + num_tokens * 70}))
          << table.name << " " << num_tokens;
    }
}

TEST_P(Float4LinearTest, RowsAreReadOneByOneInEitherLayout) {
  const auto packed = IntegerWeight::Some(kForm, 70, 96, 6);
  const IntegerWeight plain(kForm, 70, 96, packed.elements, packed.scales, {},
                            WeightLayout::kRowMajor);
  const Tensor x = Tensor::Random(activations(), {3, 96}, 5);
  EXPECT_TRUE(
      SameBits(Run(ReferenceTable(), Params(x, plain)), Run(ReferenceTable(), Params(x, packed))));
  std::array<float, 96> row;
  for (const IntegerWeight* w : {&packed, &plain})
    for (const int64_t n : {0, 63, 64, 69}) {
      UnpackWeightRow(w->weight, n, row.data());
      for (int64_t k = 0; k < 96; ++k) EXPECT_EQ(row[static_cast<size_t>(k)], w->Value(n, k));
    }
}

TEST_P(Float4LinearTest, WhatDoesNotFitIsNamed) {
  const Tensor x = Tensor::Random(activations(), {2, 96}, 1);
  const Tensor y(DType::kF32, {2, 8});
  const auto w = IntegerWeight::Some(kForm, 8, 96, 1);
  const Tensor scratch = ScratchOf(w.weight, 2);
  for (const OpTable& table : CpuOpTables(shape_)) {
    LinearParams params = Params(x, w);
    params.y = y.view();
    params.scratch = scratch.view();
    EXPECT_EQ(table.linear(params, stream_), Status::Ok());
    params.weight.exponents = nullptr;
    EXPECT_THAT(table.linear(params, stream_).message(), HasSubstr("weight.exponents: got"));
    params = Params(x, w);
    params.weight.group_size = 0;
    EXPECT_THAT(table.linear(params, stream_).message(), HasSubstr("weight.exponents: got"));
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, Float4LinearTest,
                         testing::Values(IntegerDTypes{kF4, DType::kF32},
                                         IntegerDTypes{kF4, DType::kBF16}),
                         IntegerLinears::NameOf);

}  // namespace
}  // namespace inflight::ops
