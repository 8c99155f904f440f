// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cases.h"
#include "compare.h"

namespace inflight::ops {
namespace {

// A bound on the derivative of every activation (GELU's is 1.13), and on the relative error of
// computing it: a few roundings and an exponential.
constexpr double kSlope = 1.2;
constexpr double kFunctionError = 16 * kUnit;

class LinearTest : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Device> device_ = Device::Cpu(3);
  Stream stream_{*device_};
};

struct Inputs {
  Inputs(const LinearCase& c, DType dtype, uint64_t seed)
      : x(Tensor::Random(InputDType(dtype), {c.num_tokens, c.in_features}, seed,
                         c.offset_elements)),
        w(Tensor::Random(dtype, {c.out_features, c.in_features}, seed + 1)),
        packed(dtype, CpuWeightLayout(dtype), w),
        bias(Tensor::Random(DType::kF32, {c.out_features}, seed + 2, c.offset_elements)) {}

  // sum_k |x[t, k] w[n, k]|
  double AbsSum(int64_t t, int64_t n) const {
    const int64_t k_end = w.view().shape[1];
    double sum = 0;
    for (int64_t k = 0; k < k_end; ++k)
      sum += std::abs(static_cast<double>(x.Get(t * k_end + k)) * w.Get(n * k_end + k));
    return sum;
  }

  Tensor x, w;
  PackedWeight packed;
  Tensor bias;
};

std::string Where(const OpTable& table, const char* name, DType dtype) {
  return table.name + " " + name + " " + std::string(DTypeName(dtype));
}

TEST_P(LinearTest, EveryTableAgreesWithTheReference) {
  const DType dtype = GetParam();
  for (const LinearCase& c : CpuLinearCases()) {
    const Inputs in(c, dtype, 7);
    Tensor want(c.y_dtype, {c.num_tokens, c.out_features});
    LinearParams params = {.x = {.values = in.x.view()},
                           .weight = in.packed.weight(),
                           .bias = c.bias ? in.bias.view() : TensorView{},
                           .activation = c.activation,
                           .y = want.view()};
    ASSERT_EQ(ReferenceTable().linear(params, stream_), Status::Ok());
    std::vector<double> bound;
    for (int64_t t = 0; t < c.num_tokens; ++t)
      for (int64_t n = 0; n < c.out_features; ++n) {
        const double y = want.Get(t * c.out_features + n);
        const double sum =
            SumBound(c.in_features, in.AbsSum(t, n) + (c.bias ? std::abs(in.bias.Get(n)) : 0));
        bound.push_back(RoundedBound(kSlope * sum + kFunctionError * std::abs(y), y, c.y_dtype));
      }
    for (const OpTable& table : VectorTables({.weight_dtype = dtype})) {
      Tensor got(c.y_dtype, {c.num_tokens, c.out_features}, c.offset_elements);
      params.y = got.view();
      ASSERT_EQ(table.linear(params, stream_), Status::Ok());
      EXPECT_TRUE(Within(got.ToFloats(), want.ToFloats(), bound)) << Where(table, c.name, dtype);
    }
  }
}

TEST_P(LinearTest, GatedLinearOfEveryTableAgreesWithTheReference) {
  const DType dtype = GetParam();
  for (const LinearCase& c : CpuLinearCases()) {
    if (c.in_features > 1000) continue;
    const Inputs gate(c, dtype, 11);
    const Inputs up(c, dtype, 23);  // its x is not used
    Tensor want(c.y_dtype, {c.num_tokens, c.out_features});
    Tensor g(DType::kF32, {c.num_tokens, c.out_features});
    Tensor u(DType::kF32, {c.num_tokens, c.out_features});
    GatedLinearParams params = {.x = {.values = gate.x.view()},
                                .gate = gate.packed.weight(),
                                .up = up.packed.weight(),
                                .gate_bias = c.bias ? gate.bias.view() : TensorView{},
                                .up_bias = c.bias ? up.bias.view() : TensorView{},
                                .activation = c.activation,
                                .y = want.view()};
    const OpTable reference = ReferenceTable();
    ASSERT_EQ(reference.gated_linear(params, stream_), Status::Ok());
    for (auto& [weight, bias, activation, y] :
         {std::tuple{params.gate, params.gate_bias, c.activation, &g},
          std::tuple{params.up, params.up_bias, ActivationKind::kNone, &u}})
      ASSERT_EQ(reference.linear({.x = params.x,
                                  .weight = weight,
                                  .bias = bias,
                                  .activation = activation,
                                  .y = y->view()},
                                 stream_),
                Status::Ok());
    std::vector<double> bound;
    for (int64_t t = 0; t < c.num_tokens; ++t)
      for (int64_t n = 0; n < c.out_features; ++n) {
        const int64_t i = t * c.out_features + n;
        double up_sum = 0;  // |x| |up row|, with the x of the gate
        for (int64_t k = 0; k < c.in_features; ++k)
          up_sum += std::abs(static_cast<double>(gate.x.Get(t * c.in_features + k)) *
                             up.w.Get(n * c.in_features + k));
        const double g_bound = kSlope * SumBound(c.in_features, gate.AbsSum(t, n) + 1) +
                               kFunctionError * std::abs(static_cast<double>(g.Get(i)));
        const double u_bound = SumBound(c.in_features, up_sum + 1);
        // |gu - g'u'| <= dg |u| + |g| du + dg du
        const double product = g_bound * std::abs(static_cast<double>(u.Get(i))) +
                               std::abs(static_cast<double>(g.Get(i))) * u_bound +
                               g_bound * u_bound;
        bound.push_back(RoundedBound(product, want.Get(i), c.y_dtype) +
                        2 * kUnit * std::abs(static_cast<double>(want.Get(i))));
      }
    for (const OpTable& table : VectorTables({.weight_dtype = dtype})) {
      Tensor got(c.y_dtype, {c.num_tokens, c.out_features}, c.offset_elements);
      params.y = got.view();
      ASSERT_EQ(table.gated_linear(params, stream_), Status::Ok());
      EXPECT_TRUE(Within(got.ToFloats(), want.ToFloats(), bound)) << Where(table, c.name, dtype);
    }
  }
}

TEST_P(LinearTest, LmHeadReadsTheChosenRows) {
  const DType dtype = GetParam();
  for (const LmHeadCase& head : LmHeadCases()) {
    if (head.gpu_only) continue;
    const LinearCase c = {head.name, head.num_tokens, head.vocab_size, head.hidden_size};
    const Inputs in(c, dtype, 3);
    const TensorView bias = head.bias ? in.bias.view() : TensorView{};
    const Tensor rows = Tensor::Int32(head.rows);
    const auto num_rows = static_cast<int64_t>(head.rows.size());
    for (const OpTable& table : CpuOpTables({.weight_dtype = dtype})) {
      Tensor all(DType::kF32, {c.num_tokens, c.out_features});
      ASSERT_EQ(table.linear({.x = {.values = in.x.view()},
                              .weight = in.packed.weight(),
                              .bias = bias,
                              .y = all.view()},
                             stream_),
                Status::Ok());
      Tensor logits(DType::kF32, {num_rows, c.out_features}, head.offset_elements);
      ASSERT_EQ(table.lm_head({.x = {.values = in.x.view()},
                               .rows = rows.view(),
                               .weight = in.packed.weight(),
                               .bias = bias,
                               .logits = logits.view()},
                              stream_),
                Status::Ok());
      std::vector<float> want;
      for (const int row : head.rows)
        for (int n = 0; n < c.out_features; ++n)
          want.push_back(all.Get(static_cast<int64_t>(row) * c.out_features + n));
      EXPECT_TRUE(SameBits(logits.ToFloats(), want)) << Where(table, head.name, dtype);
    }
  }
}

// Beside the same logits without them: a product, a tanh and a product of float32, a few ulp each,
// also where a logit is next to 0.
TEST_P(LinearTest, LogitsAreScaledAndCapped) {
  const DType dtype = GetParam();
  const LinearCase c = {"capped", 5, 200, 96};
  const Inputs in(c, dtype, 3);
  const Tensor rows = Tensor::Int32({4, 0, 3});
  for (const OpTable& table : CpuOpTables({.weight_dtype = dtype}))
    for (const auto& [scale, softcap] : {std::pair{1.0F, 2.0F}, {0.125F, 0.0F}, {40.0F, 5.0F}}) {
      Tensor plain(DType::kF32, {3, c.out_features});
      Tensor got(DType::kF32, {3, c.out_features});
      LmHeadParams params = {.x = {.values = in.x.view()},
                             .rows = rows.view(),
                             .weight = in.packed.weight(),
                             .bias = in.bias.view(),
                             .logits = plain.view()};
      ASSERT_EQ(table.lm_head(params, stream_), Status::Ok());
      params.logits = got.view();
      params.scale = scale;
      params.softcap = softcap;
      ASSERT_EQ(table.lm_head(params, stream_), Status::Ok());
      std::vector<float> want;
      std::vector<double> bound;
      for (const float logit : plain.ToFloats()) {
        const double scaled = double{scale} * logit;
        const double value = softcap == 0 ? scaled : softcap * std::tanh(scaled / softcap);
        want.push_back(static_cast<float>(value));
        bound.push_back(16 * kUnit * std::abs(value));
      }
      EXPECT_TRUE(Within(got.ToFloats(), want, bound)) << table.name << " cap " << softcap;
    }
}

// The sum over k has one order for every number of rows, so that what else is in the batch cannot
// change a result.
TEST_P(LinearTest, ARowIsTheSameAloneAndInABatch) {
  const DType dtype = GetParam();
  for (const OpTable& table : VectorTables({.weight_dtype = dtype})) {
    for (const auto& [num_tokens, size] :
         {std::pair<int, int>{2, 1500}, {5, 1500}, {16, 1500}, {67, 4700}, {290, 1500}}) {
      const LinearCase c = {"batch", num_tokens, 130, size};
      const Inputs in(c, dtype, 5);
      Tensor together(DType::kF32, {num_tokens, c.out_features});
      LinearParams params = {
          .x = {.values = in.x.view()}, .weight = in.packed.weight(), .y = together.view()};
      ASSERT_EQ(table.linear(params, stream_), Status::Ok());
      Tensor alone(DType::kF32, {num_tokens, c.out_features});
      for (int t = 0; t < num_tokens; ++t) {
        params.x.values = {.data = in.x.view().as<std::byte>() + static_cast<size_t>(t) *
                                                                     static_cast<size_t>(size) *
                                                                     SizeOf(in.x.view().dtype),
                           .dtype = in.x.view().dtype,
                           .shape = {1, size}};
        params.y = {.data = alone.view().as<float>() + t * c.out_features,
                    .dtype = DType::kF32,
                    .shape = {1, c.out_features}};
        ASSERT_EQ(table.linear(params, stream_), Status::Ok());
      }
      EXPECT_TRUE(SameBits(together.ToFloats(), alone.ToFloats())) << table.name;
    }
  }
}

// x = (1, 2, 3); W = ((1, 0, -1), (1/2, 1/2, 1/2)); bias = (1/4, -1): y = (-7/4, 2), by relu
// (0, 2); gated with the rows as gate and up, relu: 0 * 2 and so on. All exact in 16 bits.
TEST_P(LinearTest, HandCheckedCase) {
  const DType dtype = GetParam();
  const Tensor x = Tensor::Of(InputDType(dtype), {1, 3}, {1, 2, 3});
  const Tensor bias = Tensor::Of(DType::kF32, {2}, {0.25F, -1});
  const PackedWeight w(dtype, CpuWeightLayout(dtype),
                       Tensor::Of(DType::kF32, {2, 3}, {1, 0, -1, 0.5F, 0.5F, 0.5F}));
  for (const OpTable& table : CpuOpTables({.weight_dtype = dtype})) {
    Tensor y(DType::kF32, {1, 2});
    LinearParams linear = {
        .x = {.values = x.view()}, .weight = w.weight(), .bias = bias.view(), .y = y.view()};
    ASSERT_EQ(table.linear(linear, stream_), Status::Ok());
    EXPECT_EQ(y.ToFloats(), (std::vector<float>{-1.75F, 2})) << table.name;
    linear.activation = ActivationKind::kRelu;
    ASSERT_EQ(table.linear(linear, stream_), Status::Ok());
    EXPECT_EQ(y.ToFloats(), (std::vector<float>{0, 2})) << table.name;
    // gate = up = W: y = relu(Wx + b) * Wx, Wx = (-2, 3)
    ASSERT_EQ(table.gated_linear({.x = {.values = x.view()},
                                  .gate = w.weight(),
                                  .up = w.weight(),
                                  .gate_bias = bias.view(),
                                  .activation = ActivationKind::kRelu,
                                  .y = y.view()},
                                 stream_),
              Status::Ok());
    EXPECT_EQ(y.ToFloats(), (std::vector<float>{0, 6})) << table.name;
  }
}

INSTANTIATE_TEST_SUITE_P(WeightDTypes, LinearTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

// Through a 1 x 1 linear with weight 1, so that the vector functions are met with any argument:
// against double precision, from far below to far above, and where they must not lose NaN.
TEST(ActivationTest, FunctionsAreAccurateEverywhere) {
  const auto device = Device::Cpu(1);
  Stream stream(*device);
  const PackedWeight one(DType::kF32, WeightLayout::kPanel64, Tensor::Of(DType::kF32, {1, 1}, {1}));
  std::vector<float> values = {0.0F, -0.0F, 1e-30F, -1e-30F, 88.0F, -88.0F, 200.0F, -200.0F, 1e30F};
  for (float v = -30; v < 30; v += 0.0371F) values.push_back(v);
  const auto n = static_cast<int64_t>(values.size());
  const Tensor x = Tensor::Of(DType::kF32, {n, 1}, values);
  for (const OpTable& table : CpuOpTables({})) {
    for (const ActivationKind kind :
         {ActivationKind::kGelu, ActivationKind::kGeluTanh, ActivationKind::kSilu}) {
      Tensor y(DType::kF32, {n, 1});
      ASSERT_EQ(table.linear({.x = {.values = x.view()},
                              .weight = one.weight(),
                              .activation = kind,
                              .y = y.view()},
                             stream),
                Status::Ok());
      std::vector<float> want;
      std::vector<double> bound;
      for (const double v : values) {
        const double u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
        const double f = kind == ActivationKind::kSilu   ? v / (1 + std::exp(-v))
                         : kind == ActivationKind::kGelu ? 0.5 * v * std::erfc(-v / M_SQRT2)
                                                         : 0.5 * v * (1 + std::tanh(u));
        want.push_back(static_cast<float>(f));
        // The argument of the exponential carries a few roundings of its own size; where the
        // result vanishes, 1 + tanh has lost all digits in the reference.
        const double argument = kind == ActivationKind::kSilu   ? std::abs(v)
                                : kind == ActivationKind::kGelu ? v * v / 2
                                                                : 2 * std::abs(u);
        bound.push_back((8 + 4 * argument) * kUnit * std::abs(f) +
                        4 * kUnit * std::min(1.0, std::abs(v)) * std::abs(v) + 1e-36);
      }
      EXPECT_TRUE(Within(y.ToFloats(), want, bound)) << table.name << " " << static_cast<int>(kind);
    }
  }
}

TEST(ActivationTest, NanStaysNan) {
  const auto device = Device::Cpu(1);
  Stream stream(*device);
  const PackedWeight one(DType::kF32, WeightLayout::kPanel64, Tensor::Of(DType::kF32, {1, 1}, {1}));
  const Tensor x = Tensor::Of(DType::kF32, {1, 1}, {std::numeric_limits<float>::quiet_NaN()});
  for (const OpTable& table : VectorTables({})) {
    for (const ActivationKind kind :
         {ActivationKind::kNone, ActivationKind::kRelu, ActivationKind::kGelu,
          ActivationKind::kGeluTanh, ActivationKind::kSilu}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        Tensor y(dtype, {1, 1});
        ASSERT_EQ(table.linear({.x = {.values = x.view()},
                                .weight = one.weight(),
                                .activation = kind,
                                .y = y.view()},
                               stream),
                  Status::Ok());
        EXPECT_TRUE(std::isnan(y.Get(0))) << table.name << " " << static_cast<int>(kind);
      }
    }
  }
}

TEST(LinearErrorTest, AMismatchNamesTheFieldAndBothShapes) {
  const auto device = Device::Cpu(1);
  Stream stream(*device);
  const PackedWeight w(DType::kF32, WeightLayout::kPanel64,
                       Tensor::Random(DType::kF32, {8, 16}, 1));
  const PackedWeight plain(DType::kF32, WeightLayout::kRowMajor,
                           Tensor::Random(DType::kF32, {8, 16}, 1));
  const Tensor x = Tensor::Random(DType::kF32, {2, 16}, 1);
  const Tensor half = Tensor::Random(DType::kBF16, {2, 16}, 1);
  Tensor y(DType::kF32, {2, 7});
  Tensor good(DType::kF32, {2, 8});
  for (const OpTable& table : CpuOpTables({})) {
    const LinearParams wrong_y = {.x = {.values = x.view()}, .weight = w.weight(), .y = y.view()};
    EXPECT_EQ(table.linear(wrong_y, stream).ToString(),
              "INVALID_ARGUMENT: y: got float32 [2, 7], needed float32 or bfloat16 [2, 8]");
    const LinearParams wrong_x = {
        .x = {.values = half.view()}, .weight = w.weight(), .y = good.view()};
    EXPECT_EQ(table.linear(wrong_x, stream).ToString(),
              "INVALID_ARGUMENT: x: got bfloat16 [2, 16], needed float32 [2, 16]");
    const Tensor rows = Tensor::Int32({0, 2});
    const LmHeadParams wrong_row = {.x = {.values = x.view()},
                                    .rows = rows.view(),
                                    .weight = w.weight(),
                                    .logits = good.view()};
    EXPECT_EQ(table.lm_head(wrong_row, stream).ToString(),
              "INVALID_ARGUMENT: rows[1]: got 2, needed [0, 2)");
    const Status unpacked = table.linear(
        {.x = {.values = x.view()}, .weight = plain.weight(), .y = good.view()}, stream);
    EXPECT_EQ(unpacked.ok(), table.name == "reference") << unpacked.ToString();
  }
}

// 448^2 * 4096 / 65504 = 12550.1, 448^2 * 14336 / 65504 = 43925.4; the largest sum of one product,
// 3.06 times float16's largest.
TEST(Fp8ProductScaleTest, IsTheLargestPowerOfTwoThatKeepsSumsWithinFloat16) {
  EXPECT_EQ(Fp8ProductScale(DType::kF16, 1), 0x1p-2F);
  EXPECT_EQ(Fp8ProductScale(DType::kF16, 4096), 0x1p-14F);
  EXPECT_EQ(Fp8ProductScale(DType::kF16, 14336), 0x1p-16F);
  EXPECT_EQ(Fp8ProductScale(DType::kBF16, 14336), 1);
  EXPECT_EQ(Fp8ProductScale(DType::kF32, 14336), 1);
}

}  // namespace
}  // namespace inflight::ops
