// SPDX-License-Identifier: Apache-2.0
// Linears of float4 weights with exponents of groups (MXFP4), read as codes and widened, against
// sums in float64 of what the elements stand for.
#include "ops/cuda/float4_linear.h"

#include <gmock/gmock.h>

#include <cmath>

#include "against_reference.h"
#include "ops/linear.h"
#include "ops/tensor_core_order.h"
#include "product_bounds.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

using cuda::GemmParams;
using testing::HasSubstr;

constexpr DType kF4 = DType::kF4E2M1;

// Random codes and exponents, and the numbers that they stand for, which every 16-bit dtype has.
struct Float4Operand {
  Float4Operand(Device& device, int64_t rows, int64_t width, DType dtype, uint64_t seed,
                bool is_ordered = true)
      : wide(dtype, {rows, width}),
        codes(DType::kU8, {rows, width / 2}),
        exponents(DType::kU8, {rows, width / kFloat4Unit}) {
    Random random(seed);
    auto* const bytes = codes.view().as<uint8_t>();
    auto* const powers = exponents.view().as<uint8_t>();
    for (int64_t i = 0; i < rows * width / 2; ++i)
      bytes[i] = static_cast<uint8_t>(random.Below(256));
    for (int64_t i = 0; i < rows * width / kFloat4Unit; ++i)
      powers[i] = static_cast<uint8_t>(118 + random.Below(5));
    // By the table of OCP Microscaling Formats 1.0, 5.3.3.
    constexpr float kElements[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    for (int64_t i = 0; i < rows * width; ++i) {
      const int code = bytes[i / 2] >> (i % 2 * 4) & 0xf;
      const float element = code < 8 ? kElements[code] : -kElements[code - 8];
      wide.Set(i, std::ldexp(element, powers[i / kFloat4Unit] - 127));
    }
    device_codes = {device, codes};
    device_exponents = {device, exponents};
    weight = {.data = device_codes.view().data,
              .dtype = kF4,
              .out_features = rows,
              .in_features = width,
              .exponents = device_exponents.view().as<const uint8_t>(),
              .group_size = kFloat4Unit};
    if (is_ordered) Must(OrderForTensorCores(device, &weight));
  }

  Tensor wide, codes, exponents;
  DeviceTensor device_codes, device_exponents;
  Weight weight;
};

class CudaFloat4LinearTest : public AgainstReference {
 protected:
  static ShapeClass Shape(DType dtype) {
    ShapeClass shape = kShape;
    shape.weight_dtype = kF4;
    shape.dtype = shape.kv_dtype = dtype;
    return shape;
  }
  static std::vector<double> Bounds(const Sums& sums, int64_t k) {
    std::vector<double> bounds;
    for (const double absolute : sums.absolute)
      bounds.push_back(ProductBound(DType::kBF16, k, absolute));
    return bounds;
  }
};

TEST_F(CudaFloat4LinearTest, WidenedElementsAreTheFormatsNumbers) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const auto& [n, k] : {std::pair{64, 64}, {1, 32}, {70, 96}, {192, 2880}})
      for (const bool is_ordered : {false, true}) {
        if (is_ordered && (n % 64 != 0 || k % 64 != 0)) continue;
        const Float4Operand w(device(), n, k, dtype, 3, is_ordered);
        const DeviceTensor out = Output(dtype, {n, k});
        ASSERT_EQ(cuda::Dequantize(w.weight, dtype, out.view().data, stream()), Status::Ok());
        EXPECT_TRUE(SameBits(out.ToHost().ToFloats(), w.wide.ToFloats()))
            << DTypeName(dtype) << " [" << n << ", " << k << "] " << is_ordered;
        EXPECT_TRUE(Intact(out));
      }
}

// Codes of few tokens and of many, and a shape that has none of tensor cores' order.
TEST_F(CudaFloat4LinearTest, ProductsAreSumsOfTheFormatsNumbers) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const auto stream = NewStream(Shape(dtype), 1024, 64);
    const OpTable table = Table(Shape(dtype));
    for (const auto& [n, k] : {std::pair{64, 64}, {320, 2880}, {1024, 192}, {72, 96}}) {
      const bool is_ordered = n % 64 == 0 && k % 64 == 0;
      const Float4Operand w(device(), n, k, dtype, 5, is_ordered);
      const Tensor bias = Tensor::Random(DType::kF32, {n}, 6);
      const DeviceTensor device_bias = ToDevice(bias);
      for (const int64_t m : {1, 3, 8, 9, 16, 17, 33, 64, 65, 130, 256, 300})
        for (const DType y_dtype : {dtype, DType::kF32}) {
          const Tensor x = Tensor::Random(dtype, {m, k}, 7);
          const DeviceTensor device_x = ToDevice(x);
          const DeviceTensor y = Output(y_dtype, {m, n});
          ASSERT_EQ(table.linear({.x = {.values = device_x.view()},
                                  .weight = w.weight,
                                  .bias = device_bias.view(),
                                  .y = y.view()},
                                 *stream),
                    Status::Ok());
          const Sums sums(pool(), x, w.wide);
          std::vector<double> want = sums.exact;
          std::vector<double> bounds = Bounds(sums, k);
          for (size_t i = 0; i < want.size(); ++i) {
            const double b = bias.Get(static_cast<int64_t>(i) % n);
            bounds[i] += 8 * kUnit * (std::abs(want[i]) + std::abs(b));
            // Of many tokens the product is stored before the bias is added.
            if (y_dtype == dtype)
              bounds[i] += (dtype == DType::kF16 ? 0x1p-11 : 0x1p-8) * std::abs(want[i]);
            want[i] += b;
          }
          EXPECT_TRUE(Near(y.ToHost(), want, bounds))
              << DTypeName(dtype) << " [" << n << ", " << k << "] of " << m << " tokens";
          EXPECT_TRUE(Intact(y));
        }
    }
  }
}

// Both branches, side by side in memory and apart.
TEST_F(CudaFloat4LinearTest, GatedLinearsMultiplyTheirBranches) {
  constexpr int64_t kN = 128, kK = 192, kM = 5;
  const DType dtype = DType::kBF16;
  const auto stream = NewStream(Shape(dtype), 64, 64);
  const OpTable table = Table(Shape(dtype));
  const Float4Operand both(device(), 2 * kN, kK, dtype, 11);
  const Float4Operand other(device(), kN, kK, dtype, 12);
  const Tensor x = Tensor::Random(dtype, {kM, kK}, 13);
  const DeviceTensor device_x = ToDevice(x);
  const Sums of_both(pool(), x, both.wide), of_other(pool(), x, other.wide);
  for (const bool are_adjacent : {true, false}) {
    Weight up = are_adjacent ? RowsOf(both.weight, kN, kN) : other.weight;
    const DeviceTensor y = Output(dtype, {kM, kN});
    const DeviceTensor workspace = Output(dtype, {kM, 2 * kN});
    ASSERT_EQ(table.gated_linear({.x = {.values = device_x.view()},
                                  .gate = RowsOf(both.weight, 0, kN),
                                  .up = up,
                                  .activation = ActivationKind::kNone,
                                  .y = y.view(),
                                  .workspace = workspace.view()},
                                 *stream),
              Status::Ok());
    std::vector<double> want, bounds;
    for (int64_t t = 0; t < kM; ++t)
      for (int64_t n = 0; n < kN; ++n) {
        const auto gate_at = static_cast<size_t>(t * 2 * kN + n);
        const Sums& of_up = are_adjacent ? of_both : of_other;
        const size_t up_at = are_adjacent ? gate_at + kN : static_cast<size_t>(t * kN + n);
        const double g = of_both.exact[gate_at], u = of_up.exact[up_at];
        // Both are rounded to 16 bits on the way.
        const double g_off =
            AfterRounding(ProductBound(dtype, kK, of_both.absolute[gate_at]), g, dtype);
        const double u_off =
            AfterRounding(ProductBound(dtype, kK, of_up.absolute[up_at]), u, dtype);
        want.push_back(g * u);
        bounds.push_back(g_off * std::abs(u) + u_off * std::abs(g) + g_off * u_off);
      }
    EXPECT_TRUE(Near(y.ToHost(), want, bounds)) << are_adjacent;
  }
}

// Each number of tokens has another tile; a row has the same bits in all of them, and where streams
// are fixed in products of any number.
TEST_F(CudaFloat4LinearTest, ARowIsTheSameInEveryBatch) {
  constexpr int64_t kN = 192, kK = 448, kM = 300;
  const DType dtype = DType::kBF16;
  const auto fixed = NewStream(Shape(dtype), 1024, 64, OpChoice::kFixed);
  const OpTable table = Table(Shape(dtype));
  const Float4Operand w(device(), kN, kK, dtype, 17);
  const Tensor x = Tensor::Random(dtype, {kM, kK}, 18);
  const DeviceTensor device_x = ToDevice(x);
  const auto run = [&](int64_t m) {
    TensorView rows = device_x.view();
    rows.shape = {m, kK};
    const DeviceTensor y = Output(dtype, {m, kN});
    EXPECT_EQ(table.linear({.x = {.values = rows}, .weight = w.weight, .bias = {}, .y = y.view()},
                           *fixed),
              Status::Ok());
    return y.ToHost().ToFloats();
  };
  const std::vector<float> all = run(kM);
  for (const int64_t m : {1, 2, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 256})
    EXPECT_TRUE(SameBits(run(m), {all.begin(), all.begin() + m * kN})) << m;
}

TEST_F(CudaFloat4LinearTest, WhatDoesNotFitIsNamed) {
  const DType dtype = DType::kBF16;
  const auto stream = NewStream(Shape(dtype), 64, 64);
  const OpTable table = Table(Shape(dtype));
  const Float4Operand w(device(), 64, 64, dtype, 19);
  const DeviceTensor x = Output(dtype, {1, 64}), y = Output(dtype, {1, 64});
  LinearParams params = {.x = {.values = x.view()}, .weight = w.weight, .bias = {}, .y = y.view()};
  params.weight.exponents = nullptr;
  EXPECT_THAT(table.linear(params, *stream).message(), HasSubstr("weight.exponents: got none"));
  params.weight = w.weight;
  params.weight.group_size = 64;
  EXPECT_THAT(table.linear(params, *stream).message(),
              HasSubstr("weight.exponents: got some beside groups of 64"));
  const Float4Operand plain(device(), 64, 64, dtype, 20, /*is_ordered=*/false);
  const GemmParams product = {.x = x.view().data, .y = y.view().data, .m = 1, .n = 64, .k = 64};
  EXPECT_FALSE(cuda::Float4LinearCanRun(product, plain.weight));
  EXPECT_THAT(cuda::Float4Linear(product, plain.weight, this->stream()).message(),
              HasSubstr("no product of codes of float4_e2m1fn row_major weights of [64, 64]"));
}

}  // namespace
}  // namespace inflight::ops
