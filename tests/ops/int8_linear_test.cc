// SPDX-License-Identifier: Apache-2.0
// Linears of int8 weights: the formula of ops/linear.h by hand and against the dequantised weights,
// and every table against the reference, bit for bit, since integer sums have no order.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>

#include "cases.h"
#include "compare.h"

namespace inflight::ops {
namespace {

constexpr ShapeClass kInt8 = {.weight_dtype = DType::kI8};

// A packed weight with its scales, and the elements that it was made from.
struct Int8Weight {
  Int8Weight(int64_t rows, int64_t columns, std::vector<int8_t> values, std::vector<float> s,
             WeightLayout layout = WeightLayout::kPanel64Vnni4)
      : elements(std::move(values)),
        scales(std::move(s)),
        memory(DType::kU8, {static_cast<int64_t>(WeightBytes(DType::kI8, layout, rows, columns))}) {
    PackWeight({elements.data(), DType::kI8, {rows, columns}}, DType::kI8, layout,
               memory.view().data);
    weight = {.data = memory.view().data,
              .dtype = DType::kI8,
              .layout = layout,
              .out_features = rows,
              .in_features = columns,
              .scales = scales.data()};
  }
  // Elements over the whole range, -128 included; scales of different sizes.
  static Int8Weight Some(int64_t rows, int64_t columns, uint64_t seed) {
    Random random(seed);
    std::vector<int8_t> values(static_cast<size_t>(rows * columns));
    for (int8_t& v : values) v = static_cast<int8_t>(random.Below(256) - 128);
    std::vector<float> scales(static_cast<size_t>(rows));
    for (float& s : scales) s = (1.5F + random.Uniform()) / 256;
    return {rows, columns, std::move(values), std::move(scales)};
  }
  double Value(int64_t n, int64_t k) const {
    return static_cast<double>(elements[static_cast<size_t>(n * weight.in_features + k)]) *
           scales[static_cast<size_t>(n)];
  }

  std::vector<int8_t> elements;
  std::vector<float> scales;
  Tensor memory;
  Weight weight;
};

Tensor Scratch(int64_t num_tokens, int64_t in_features) {
  return {DType::kU8,
          {static_cast<int64_t>(LinearScratchBytes(DType::kI8, num_tokens, in_features))}};
}

class Int8LinearTest : public testing::TestWithParam<DType> {  // of the activations
 protected:
  std::vector<float> Run(const OpTable& table, LinearParams params, DType y_dtype = DType::kF32,
                         int offset = 0) {
    const int64_t num_tokens = params.x.values.shape[0];
    const Tensor scratch = Scratch(num_tokens, params.weight.in_features);
    const Tensor y(y_dtype, {num_tokens, params.weight.out_features}, offset);
    params.scratch = scratch.view();
    params.y = y.view();
    EXPECT_EQ(table.linear(params, stream_), Status::Ok());
    return y.ToFloats();
  }

  std::unique_ptr<Device> device_ = Device::Cpu(3);
  Stream stream_{*device_};
};

// The largest magnitude is 127, so that r = s_x = 1: q = (1, -2, 0, 127), one half going to the
// even zero. Row 0: (1 - 4 + 0 - 16256) / 2 + 1/4. Row 1: (-128 - 254 + 0 + 0) / 4 - 1. All exact.
TEST_P(Int8LinearTest, HandCheckedCase) {
  const Tensor x = Tensor::Of(GetParam(), {1, 4}, {1, -2, 0.5F, 127});
  const Tensor bias = Tensor::Of(DType::kF32, {2}, {0.25F, -1});
  const Int8Weight w(2, 4, {1, 2, 3, -128, -128, 127, 5, 0}, {0.5F, 0.25F});
  for (const OpTable& table : CpuOpTables(kInt8)) {
    LinearParams params = {
        .x = {.values = x.view()}, .weight = w.weight, .bias = bias.view(), .y = {}};
    EXPECT_EQ(Run(table, params), (std::vector<float>{-8129.25F, -96.5F})) << table.name;
    params.activation = ActivationKind::kRelu;
    EXPECT_EQ(Run(table, params), (std::vector<float>{0, 0})) << table.name;
  }
}

// Rows of zeros and of nothing but the smallest numbers give the bias; infinity and NaN give NaN in
// their own row alone.
TEST_P(Int8LinearTest, RowsWithoutAScale) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float tiny = std::numeric_limits<float>::min() / 4;
  const Tensor x = Tensor::Of(GetParam(), {5, 2},
                              {0, -0.0F, 3, infinity, std::nanf(""), 2, tiny, -tiny, 127, 1});
  const Tensor bias = Tensor::Of(DType::kF32, {1}, {0.5F});
  const Int8Weight w(1, 2, {2, -3}, {1});
  for (const OpTable& table : CpuOpTables(kInt8)) {
    const auto y =
        Run(table, {.x = {.values = x.view()}, .weight = w.weight, .bias = bias.view(), .y = {}});
    EXPECT_EQ(y[0], 0.5F) << table.name;
    EXPECT_TRUE(std::isnan(y[1])) << table.name;
    EXPECT_TRUE(std::isnan(y[2])) << table.name;
    EXPECT_EQ(y[3], 0.5F) << table.name;
    EXPECT_EQ(y[4], 251.5F) << table.name;
  }
}

// Every product at its largest, so that sums of 16 bits would saturate, and of 32 nearly do:
// 131072 * 127 * 128 = 2^31 - 2^24.
TEST_P(Int8LinearTest, TheLargestSumsAreExact) {
  for (const int64_t size : {int64_t{8192}, kMaxInt8Features}) {
    const Int8Weight w(2, size, std::vector<int8_t>(static_cast<size_t>(2 * size), -128), {1, 1});
    std::vector<float> values(static_cast<size_t>(2 * size), -127);
    std::fill_n(values.begin(), size, 127.0F);
    const Tensor x = Tensor::Of(GetParam(), {2, size}, values);
    const auto sum = static_cast<float>(size * 127 * 128);
    for (const OpTable& table : CpuOpTables(kInt8))
      EXPECT_EQ(Run(table, {.x = {.values = x.view()}, .weight = w.weight, .bias = {}, .y = {}}),
                (std::vector<float>{-sum, -sum, sum, sum}))
          << table.name << " " << size;
  }
}

// What rounding activations may change: half a step on each, so (s_x / 2) sum_k |w[n, k]|, and a
// few roundings of float32 (r, x r, s_x and the three of the result) of the sum of magnitudes.
TEST_P(Int8LinearTest, TheReferenceStaysNearTheDequantisedWeights) {
  for (const LinearCase& c : LinearCases()) {
    const Tensor x = Tensor::Random(GetParam(), {c.num_tokens, c.in_features}, 7);
    const Int8Weight w = Int8Weight::Some(c.out_features, c.in_features, 8);
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
        double weights = 0;
        for (int64_t k = 0; k < c.in_features; ++k) {
          sum += x.Get(t * c.in_features + k) * w.Value(n, k);
          weights += std::abs(w.Value(n, k));
        }
        want.push_back(static_cast<float>(sum));
        bound.push_back(weights * largest * (0.5 / 127 + 8 * kUnit));
      }
    }
    EXPECT_TRUE(Within(got, want, bound)) << c.name;
  }
}

TEST_P(Int8LinearTest, EveryTableGivesTheBitsOfTheReference) {
  for (const LinearCase& c : LinearCases()) {
    const Tensor x =
        Tensor::Random(GetParam(), {c.num_tokens, c.in_features}, 17, c.offset_elements);
    const Int8Weight w = Int8Weight::Some(c.out_features, c.in_features, 18);
    const Tensor bias = Tensor::Random(DType::kF32, {c.out_features}, 19, c.offset_elements);
    LinearParams params = {.x = {.values = x.view()},
                           .weight = w.weight,
                           .bias = c.bias ? bias.view() : TensorView{},
                           .y = {}};
    const auto want = Run(ReferenceTable(), params, c.y_dtype);
    for (const OpTable& table : VectorTables(kInt8))
      EXPECT_TRUE(SameBits(Run(table, params, c.y_dtype, c.offset_elements), want))
          << table.name << " " << c.name;
  }
}

TEST_P(Int8LinearTest, GatedLinearOfEveryTableGivesTheBitsOfTheReference) {
  for (const LinearCase& c : LinearCases()) {
    const Tensor x = Tensor::Random(GetParam(), {c.num_tokens, c.in_features}, 27);
    const Int8Weight gate = Int8Weight::Some(c.out_features, c.in_features, 28);
    const Int8Weight up = Int8Weight::Some(c.out_features, c.in_features, 29);
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
    for (const OpTable& table : VectorTables(kInt8))
      EXPECT_TRUE(SameBits(run(table), want)) << table.name << " " << c.name;
  }
}

TEST_P(Int8LinearTest, LmHeadReadsTheChosenRows) {
  const Tensor x = Tensor::Random(GetParam(), {9, 96}, 3);
  const Int8Weight w = Int8Weight::Some(131, 96, 4);
  const std::vector<int> chosen = {8, 0, 0, 5};
  const Tensor rows = Tensor::Int32(chosen);
  for (const OpTable& table : CpuOpTables(kInt8)) {
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

TEST_P(Int8LinearTest, ARowIsTheSameAloneAndInABatch) {
  constexpr int64_t kSize = 1500;
  const Tensor x = Tensor::Random(GetParam(), {67, kSize}, 5);
  const Int8Weight w = Int8Weight::Some(130, kSize, 6);
  for (const OpTable& table : VectorTables(kInt8)) {
    LinearParams params = {.x = {.values = x.view()}, .weight = w.weight, .bias = {}, .y = {}};
    const auto together = Run(table, params);
    for (const int64_t t : {0, 1, 33, 66}) {
      params.x.values = {
          x.view().as<std::byte>() + static_cast<size_t>(t * kSize) * SizeOf(GetParam()),
          GetParam(),
          {1, kSize}};
      const std::vector<float> row(together.begin() + t * 130, together.begin() + (t + 1) * 130);
      EXPECT_TRUE(SameBits(Run(table, params), row)) << table.name << " " << t;
    }
  }
}

// Weights of a checkpoint's own layout are for the reference alone.
TEST_P(Int8LinearTest, TheReferenceReadsRowMajorWeightsToo) {
  const Tensor x = Tensor::Random(GetParam(), {3, 37}, 5);
  const Int8Weight packed = Int8Weight::Some(70, 37, 6);
  const Int8Weight plain(70, 37, packed.elements, packed.scales, WeightLayout::kRowMajor);
  const auto run = [&](const Int8Weight& w) {
    return Run(ReferenceTable(),
               {.x = {.values = x.view()}, .weight = w.weight, .bias = {}, .y = {}});
  };
  EXPECT_TRUE(SameBits(run(plain), run(packed)));
}

INSTANTIATE_TEST_SUITE_P(Activations, Int8LinearTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST(Int8LinearErrorTest, WhatIsMissingIsNamed) {
  const auto device = Device::Cpu(1);
  Stream stream(*device);
  const Tensor x = Tensor::Random(DType::kF32, {2, 16}, 1);
  const Tensor y(DType::kF32, {2, 8});
  const Tensor scratch = Scratch(2, 16);
  Int8Weight w = Int8Weight::Some(8, 16, 1);
  for (const OpTable& table : CpuOpTables(kInt8)) {
    LinearParams params = {
        .x = {.values = x.view()}, .weight = w.weight, .bias = {}, .y = y.view()};
    EXPECT_EQ(table.linear(params, stream).message(),
              "scratch: got no tensor at 0x0, needed uint8 [144] at a multiple of 64");
    params.scratch = scratch.view();
    params.weight.scales = nullptr;
    EXPECT_NE(table.linear(params, stream).message().find("weight: got int8 panel64_vnni4 [8, 16]"),
              std::string::npos);
    params.weight = w.weight;
    params.weight.in_features = kMaxInt8Features + 1;
    EXPECT_NE(table.linear(params, stream).message().find("at most 131072 columns"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace inflight::ops
