// SPDX-License-Identifier: Apache-2.0
// Linears and experts of float8 weights in groups of 128 columns on the CPU: every code by its
// definition, the formula of ops/linear.h in double, and rows that are the same in every batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "cases.h"
#include "compare.h"

namespace inflight::ops {
namespace {

using testing::HasSubstr;

constexpr int64_t kGroup = 128;
constexpr DType kF8 = DType::kF8E4M3;

// The number of a code by OCP 8-bit Floating Point Specification 1.0, table 1.
double NumberOf(uint8_t code) {
  const int exponent = code >> 3 & 0xf;
  const int mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return NAN;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code < 128 ? magnitude : -magnitude;
}

// Codes and row-major scales, packed for the CPU's kernels.
struct Fp8Weight {
  Fp8Weight(int64_t rows, int64_t columns, std::vector<uint8_t> of_codes,
            std::vector<float> of_scales, WeightLayout layout = CpuWeightLayout(kF8))
      : codes(std::move(of_codes)),
        scales(std::move(of_scales)),
        memory(DType::kU8, {static_cast<int64_t>(WeightBytes(kF8, layout, rows, columns))}),
        packed_scales(DType::kF32, {NumScales(layout, rows, columns, kGroup)}) {
    PackWeight({codes.data(), kF8, {rows, columns}}, kF8, layout, memory.view().data);
    PackScales(scales.data(), rows, columns / kGroup, layout, packed_scales.view().as<float>());
    weight = {.data = memory.view().data,
              .dtype = kF8,
              .layout = layout,
              .out_features = rows,
              .in_features = columns,
              .scales = packed_scales.view().as<const float>(),
              .group_size = kGroup};
  }
  // Numbers of all sizes, those below the normal ones too; scales of 2^-12 to 2^-5.
  static Fp8Weight Some(int64_t rows, int64_t columns, uint64_t seed,
                        WeightLayout layout = CpuWeightLayout(kF8)) {
    ops::Random random(seed);
    std::vector<uint8_t> codes(static_cast<size_t>(rows * columns));
    for (uint8_t& code : codes) {
      const int magnitude = random.Below(127);
      code = static_cast<uint8_t>(magnitude + 128 * random.Below(2));
    }
    std::vector<float> scales(static_cast<size_t>(rows * (columns / kGroup)));
    for (float& scale : scales)
      scale = std::ldexp(1.5F + random.Uniform() / 2, random.Below(7) - 12);
    return {rows, columns, std::move(codes), std::move(scales), layout};
  }

  double Value(int64_t n, int64_t k) const {
    const int64_t columns = weight.in_features;
    return NumberOf(codes[static_cast<size_t>(n * columns + k)]) *
           scales[static_cast<size_t>(n * (columns / kGroup) + k / kGroup)];
  }

  std::vector<uint8_t> codes;
  std::vector<float> scales;
  Tensor memory, packed_scales;
  Weight weight;
};

class Fp8LinearTest : public testing::Test {
 protected:
  static LinearParams Params(const Tensor& x, const Fp8Weight& w, const TensorView& bias = {}) {
    return {.x = {.values = x.view()}, .weight = w.weight, .bias = bias, .y = {}};
  }
  std::vector<float> Run(const OpTable& table, LinearParams params, DType y_dtype = DType::kF32,
                         int offset = 0) {
    const Tensor y(y_dtype, {params.x.values.shape[0], params.weight.out_features}, offset);
    params.y = y.view();
    EXPECT_EQ(table.linear(params, stream_), Status::Ok());
    return y.ToFloats();
  }
  // All tables that take integers, and those that take bf16.
  static std::vector<OpTable> Tables() {
    std::vector<OpTable> tables = CpuOpTables({.weight_dtype = DType::kI8});
    for (OpTable& table : VectorTables({.weight_dtype = DType::kBF16}))
      if (std::ranges::find(tables, table.name, &OpTable::name) == tables.end())
        tables.push_back(std::move(table));
    return tables;
  }

  std::unique_ptr<Device> device_ = Device::Cpu(3);
  Stream stream_{*device_};
};

// A row for each code, in every place of a pair and of a group; one other number of x is not zero.
TEST_F(Fp8LinearTest, EveryCodeStandsForItsNumber) {
  constexpr int64_t kColumns = 256;
  for (const int64_t place : {0, 1, 77, 128, 255}) {
    std::vector<uint8_t> codes(256 * kColumns, 0x38);  // 1
    std::vector<float> scales(256 * 2, 0.5F);
    for (int64_t n = 0; n < 256; ++n)
      codes[static_cast<size_t>(n * kColumns + place)] = static_cast<uint8_t>(n);
    const Fp8Weight w(256, kColumns, codes, scales);
    std::vector<float> x_values(kColumns, 0);
    x_values[static_cast<size_t>(place)] = -2;
    const Tensor x = Tensor::Of(DType::kBF16, {1, kColumns}, x_values);
    for (const OpTable& table : Tables()) {
      const auto y = Run(table, Params(x, w));
      for (size_t n = 0; n < 256; ++n) {
        const double want = -NumberOf(static_cast<uint8_t>(n));
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(y[n])) << table.name << " code " << n;
        } else {
          EXPECT_EQ(y[n], want) << table.name << " code " << n;
        }
      }
    }
  }
}

// Two groups of one row, with scales 2 and 1/4: 2 (1.5 * 3 - 448) + (2^-9 * 512 + 2^-6 * 64) / 4,
// and a bias of 1/2.
TEST_F(Fp8LinearTest, HandCheckedCase) {
  std::vector<uint8_t> codes(256, 0);
  codes[0] = 0x3c;    // 1.5
  codes[1] = 0xfe;    // -448
  codes[128] = 0x01;  // 2^-9
  codes[255] = 0x08;  // 2^-6
  std::vector<float> x_values(256, 0);
  x_values[0] = 3;
  x_values[1] = 1;
  x_values[128] = 512;
  x_values[255] = 64;
  const Fp8Weight w(1, 256, codes, {2, 0.25F});
  const Tensor x = Tensor::Of(DType::kBF16, {1, 256}, x_values);
  const Tensor bias = Tensor::Of(DType::kF32, {1}, {0.5F});
  for (const OpTable& table : Tables())
    EXPECT_EQ(Run(table, Params(x, w, bias.view())), std::vector<float>{-886}) << table.name;
}

TEST_F(Fp8LinearTest, EveryTableIsTheFormulaInDouble) {
  for (const LinearCase& c : CpuLinearCases()) {
    if (c.in_features > 4096) continue;
    const int64_t columns = (c.in_features + kGroup - 1) / kGroup * kGroup;
    const Tensor x = Tensor::Random(DType::kBF16, {c.num_tokens, columns}, 17, c.offset_elements);
    const auto w = Fp8Weight::Some(c.out_features, columns, 18);
    const Tensor bias = Tensor::Random(DType::kF32, {c.out_features}, 19, c.offset_elements);
    std::vector<float> want;
    std::vector<double> bound;
    for (int64_t t = 0; t < c.num_tokens; ++t)
      for (int64_t n = 0; n < c.out_features; ++n) {
        double sum = c.bias ? bias.Get(n) : 0;
        double magnitude = std::abs(sum);
        for (int64_t k = 0; k < columns; ++k) {
          const double product = x.Get(t * columns + k) * w.Value(n, k);
          sum += product;
          magnitude += std::abs(product);
        }
        want.push_back(static_cast<float>(sum));
        bound.push_back(
            RoundedBound(SumBound(columns + columns / kGroup, magnitude), sum, c.y_dtype));
      }
    for (const OpTable& table : Tables())
      EXPECT_TRUE(Within(Run(table, Params(x, w, c.bias ? bias.view() : TensorView{}), c.y_dtype,
                             c.offset_elements),
                         want, bound))
          << table.name << " " << c.name;
  }
}

TEST_F(Fp8LinearTest, ARowIsTheSameInEveryBatch) {
  constexpr int64_t kRows = 300, kColumns = 2688, kOut = 70;
  const Tensor x = Tensor::Random(DType::kBF16, {kRows, kColumns}, 5);
  const auto w = Fp8Weight::Some(kOut, kColumns, 6);
  for (const OpTable& table : VectorTables({.weight_dtype = DType::kI8})) {
    const auto want = Run(table, Params(x, w));
    for (const int64_t num_tokens : {1, 2, 5, 16, 17, 40, 64, 65, 257}) {
      LinearParams params = Params(x, w);
      params.x.values.shape = {num_tokens, kColumns};
      EXPECT_TRUE(SameBits(Run(table, params), {want.begin(), want.begin() + num_tokens * kOut}))
          << table.name << " " << num_tokens;
    }
  }
}

// Both branches as a linear each.
TEST_F(Fp8LinearTest, GatedLinearsAreTheProductOfTheirBranches) {
  constexpr int64_t kRows = 9, kColumns = 384, kOut = 70;
  const Tensor x = Tensor::Random(DType::kBF16, {kRows, kColumns}, 7);
  const auto gate = Fp8Weight::Some(kOut, kColumns, 8), up = Fp8Weight::Some(kOut, kColumns, 9);
  for (const OpTable& table : Tables()) {
    const Tensor y(DType::kF32, {kRows, kOut});
    ASSERT_EQ(table.gated_linear({.x = {.values = x.view()},
                                  .gate = gate.weight,
                                  .up = up.weight,
                                  .activation = ActivationKind::kNone,
                                  .y = y.view()},
                                 stream_),
              Status::Ok());
    const auto g = Run(table, Params(x, gate)), u = Run(table, Params(x, up));
    const auto got = y.ToFloats();
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], g[i] * u[i], 4 * kUnit * std::abs(g[i] * u[i])) << table.name << " " << i;
  }
}

// Two experts; tokens 0 and 2 are the first's, 1 and 2 the second's.
TEST_F(Fp8LinearTest, ExpertsAreLinearsOfTheirTokens) {
  constexpr int64_t kTokens = 3, kWidth = 128, kHidden = 256, kPlaces = 4;
  const Tensor x = Tensor::Random(DType::kBF16, {kTokens, kHidden}, 11);
  const Tensor inner = Tensor::Random(DType::kBF16, {kPlaces, kWidth}, 12);
  const auto fc = Fp8Weight::Some(2 * 2 * kWidth, kHidden, 13);
  const auto proj = Fp8Weight::Some(2 * kHidden, kWidth, 14);
  const Tensor begins = Tensor::Int32({0, 2, 4}), tokens = Tensor::Int32({0, 2, 1, 2});
  const Tensor weights = Tensor::Of(DType::kF32, {kPlaces}, {1, 0.25F, 1, 0.75F});
  const ExpertRoutes routes = {
      .begins = begins.view(), .tokens = tokens.view(), .weights = weights.view(), .places = {}};
  constexpr std::array<int64_t, kPlaces> kTokenOf = {0, 2, 1, 2};
  for (const OpTable& table : Tables()) {
    const auto all = Run(table, Params(x, fc));  // of both experts: up, then gate
    const Tensor gated(DType::kF32, {kPlaces, kWidth});
    ASSERT_EQ(table.expert_gated_linear({.x = {.values = x.view()},
                                         .routes = routes,
                                         .weight = fc.weight,
                                         .bias = {},
                                         .activation = ActivationKind::kNone,
                                         .y = gated.view()},
                                        stream_),
              Status::Ok());
    for (int64_t p = 0; p < kPlaces; ++p)
      for (int64_t n = 0; n < kWidth; ++n) {
        const auto at = [&](int64_t branch) {
          const int64_t row = (p / 2 * 2 + branch) * kWidth + n;
          return all[static_cast<size_t>(kTokenOf[static_cast<size_t>(p)] * 4 * kWidth + row)];
        };
        const double want = double{at(0)} * at(1);
        ASSERT_NEAR(gated.Get(p * kWidth + n), want, 4 * kUnit * std::abs(want)) << table.name;
      }
    const auto down = Run(table, Params(inner, proj));  // of each place by both experts
    const Tensor y(DType::kF32, {kTokens, kHidden});
    ASSERT_EQ(table.expert_linear({.x = {.values = inner.view()},
                                   .routes = routes,
                                   .weight = proj.weight,
                                   .bias = {},
                                   .y = y.view()},
                                  stream_),
              Status::Ok());
    for (int64_t n = 0; n < kHidden; ++n) {
      const auto at = [&](int64_t p) {
        return double{down[static_cast<size_t>(p * 2 * kHidden + p / 2 * kHidden + n)]};
      };
      const std::array<double, 3> want = {at(0), at(2), 0.25 * at(1) + 0.75 * at(3)};
      for (int64_t t = 0; t < kTokens; ++t)
        ASSERT_NEAR(
            y.Get(t * kHidden + n), want[static_cast<size_t>(t)],
            8 * kUnit * (std::abs(at(1)) + std::abs(at(3)) + std::abs(want[0]) + std::abs(want[1])))
            << table.name;
    }
  }
}

TEST_F(Fp8LinearTest, RowsAreReadOneByOneInEitherLayout) {
  const auto packed = Fp8Weight::Some(70, 256, 6);
  const Fp8Weight plain(70, 256, packed.codes, packed.scales, WeightLayout::kRowMajor);
  const Tensor x = Tensor::Random(DType::kBF16, {3, 256}, 5);
  EXPECT_TRUE(
      SameBits(Run(ReferenceTable(), Params(x, plain)), Run(ReferenceTable(), Params(x, packed))));
  std::array<float, 256> row;
  for (const Fp8Weight* w : {&packed, &plain})
    for (const int64_t n : {0, 63, 64, 69}) {
      UnpackWeightRow(w->weight, n, row.data());
      for (int64_t k = 0; k < 256; ++k)
        EXPECT_EQ(row[static_cast<size_t>(k)], static_cast<float>(w->Value(n, k)));
    }
}

TEST_F(Fp8LinearTest, WhatDoesNotFitIsNamed) {
  const Tensor x = Tensor::Random(DType::kBF16, {2, 256}, 1);
  const Tensor wide = Tensor::Random(DType::kF32, {2, 256}, 1);
  const Tensor y(DType::kF32, {2, 8});
  const auto w = Fp8Weight::Some(8, 256, 1);
  for (const OpTable& table : Tables()) {
    const auto error = [&](auto&& change) {
      LinearParams params = Params(x, w);
      params.y = y.view();
      change(params);
      return table.linear(params, stream_).message();
    };
    EXPECT_EQ(error([](auto&) {}), "");
    EXPECT_THAT(error([](auto& p) { p.weight.scales = nullptr; }),
                HasSubstr("weight: got float8_e4m3fn"));
    EXPECT_THAT(error([](auto& p) { p.weight.group_size = 64; }), HasSubstr("in groups of 64"));
    EXPECT_THAT(error([&](auto& p) { p.weight.offsets = p.weight.scales; }),
                HasSubstr("no offsets"));
    EXPECT_THAT(error([&](auto& p) { p.x = {.values = wide.view()}; }),
                HasSubstr("needed bfloat16"));
  }
}

}  // namespace
}  // namespace inflight::ops
