// SPDX-License-Identifier: Apache-2.0
// Linears of the decoder, against float64 on the host from the operands as rounded.
#include "ops/linear.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "cuda_test.h"
#include "linear_operands.h"
#include "product_bounds.h"

namespace inflight::ops {
namespace {

double Activated(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kGelu:
      return 0.5 * x * std::erfc(-x / M_SQRT2);
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

// y = act(x w^T * scales + bias), exactly, and how far a kernel that rounds the product to the
// model's dtype before it goes on may be from it.
struct Wanted {
  std::vector<double> value, bound;
};
Wanted Finish(const Operand& x, const Operand& w, const LinearDTypes& dtypes, const Sums& sums,
              int64_t m, const Tensor* bias, ActivationKind activation, int64_t first_bias = 0) {
  // Largest slope of GELU and SiLU, and the relative error of their fast exponentials.
  constexpr double kSlope = 1.2, kFunctionError = 1e-4;
  Wanted wanted;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < sums.n; ++j) {
      const auto at = static_cast<size_t>(i * sums.n + j);
      const bool is_fp8 = dtypes.x == DType::kF8E4M3;
      const double scale = is_fp8 ? x.Scale(i) * w.Scale(j) : 1;
      const double product = sums.exact[at] * scale;
      const int64_t k = x.values.view().shape[1];
      double bound = ProductBound(dtypes.x, k, sums.absolute[at]) * scale;
      // What is rounded to the model's dtype is the product before its scales.
      const double stored = is_fp8 ? Fp8ProductScale(dtypes.model, k) / scale : 1;
      bound = AfterRounding(bound * stored, product * stored, dtypes.model) / stored;
      const double sum = product + (bias == nullptr ? 0 : bias->Get(first_bias + j));
      bound += 4 * kUnit * (std::abs(sum) + std::abs(product));
      const double y = Activated(activation, sum);
      wanted.value.push_back(y);
      wanted.bound.push_back(activation == ActivationKind::kNone
                                 ? bound
                                 : kSlope * bound + kFunctionError * (std::abs(y) + 1e-3));
    }
  return wanted;
}

class CudaLinearTest : public CudaTest {
 protected:
  // A stream with room for what weights of that dtype need.
  cuda::CudaStream& stream_for(DType weight) {
    if (!IsInteger(weight) && weight != DType::kF8E4M3) return stream();
    std::unique_ptr<cuda::CudaStream>& made = streams_[weight];
    if (made == nullptr) {
      ShapeClass shape = kShape;
      shape.weight_dtype = weight;
      made = NewStream(shape, 1024, 256);
    }
    return *made;
  }

 private:
  std::map<DType, std::unique_ptr<cuda::CudaStream>> streams_;
};

constexpr int64_t kSomeRows[] = {1, 5, 16, 33, 64, 96, 130};

TEST_F(CudaLinearTest, LinearAddsBiasAndActivates) {
  constexpr int64_t kN = 264, kK = 512;
  const Tensor bias = Tensor::Random(DType::kF32, {kN}, 9);
  const DeviceTensor device_bias = ToDevice(bias);
  for (const LinearDTypes& dtypes : kLinearDTypes) {
    for (const int64_t m : kSomeRows) {
      const Operand x(device(), dtypes.x, m, kK, 1), w(device(), dtypes.w, kN, kK, 2);
      const Sums sums(device().cpu_pool(), x.values, AsMultiplied(w, dtypes));
      for (const auto activation : {ActivationKind::kNone, ActivationKind::kGelu,
                                    ActivationKind::kGeluTanh, ActivationKind::kRelu})
        for (const bool has_bias : {false, true})
          for (const DType y_dtype : {dtypes.model, DType::kF32}) {
            const DeviceTensor y = Output(y_dtype, {m, kN});
            ASSERT_EQ(cuda::Linear({.x = x.activation(),
                                    .weight = w.weight(),
                                    .bias = has_bias ? device_bias.view() : TensorView{},
                                    .activation = activation,
                                    .y = y.view()},
                                   stream_for(dtypes.w)),
                      Status::Ok())
                << Name(dtypes, m);
            const Wanted wanted =
                Finish(x, w, dtypes, sums, m, has_bias ? &bias : nullptr, activation);
            ASSERT_TRUE(Near(y.ToHost(), wanted.value, wanted.bound))
                << Name(dtypes, m) << " activation " << static_cast<int>(activation) << " bias "
                << has_bias << " y " << DTypeName(y_dtype);
          }
    }
  }
}

TEST_F(CudaLinearTest, DeferredScalesLeaveTheProductOfCodes) {
  constexpr int64_t kN = 128, kK = 256;
  const DType f8 = DType::kF8E4M3;
  for (const DType model : {DType::kBF16, DType::kF16})
    for (const int64_t m : kSomeRows) {
      const Operand x(device(), f8, m, kK, 1), w(device(), f8, kN, kK, 2);
      const Sums sums(device().cpu_pool(), x.values, w.values);
      const DeviceTensor y = Output(model, {m, kN});
      ASSERT_EQ(
          cuda::Linear(
              {.x = x.activation(), .weight = w.weight(), .y = y.view(), .defer_scales = true},
              stream()),
          Status::Ok());
      const double scale = model == DType::kF16 ? 0x1p-10 : 1;  // 448^2 * 256 / 65504 < 2^10
      std::vector<double> want, bound;
      for (size_t i = 0; i < sums.exact.size(); ++i) {
        want.push_back(sums.exact[i] * scale);
        bound.push_back(ProductBound(f8, kK, sums.absolute[i]) * scale);
      }
      EXPECT_TRUE(Near(y.ToHost(), want, bound)) << DTypeName(model) << " " << m;
    }
}

// Every code at 448: sums beyond float16 by four orders of magnitude, which the scales undo.
TEST_F(CudaLinearTest, TheLargestFp8SumsDoNotOverflowFloat16) {
  constexpr int64_t kN = 64, kK = 4096;
  const DType f8 = DType::kF8E4M3;
  for (const int64_t m : {1, 16, 80}) {
    Tensor x(f8, {m, kK}), w(f8, {kN, kK});
    for (int64_t i = 0; i < m * kK; ++i) x.Set(i, 448);
    for (int64_t i = 0; i < kN * kK; ++i) w.Set(i, i / kK % 2 == 0 ? 448 : -448);
    Tensor x_scales(DType::kF32, {m}), w_scales(DType::kF32, {kN});
    for (int64_t i = 0; i < m; ++i) x_scales.Set(i, 0x1p-15F);
    for (int64_t i = 0; i < kN; ++i) w_scales.Set(i, 0x1p-10F);
    const DeviceTensor device_x = ToDevice(x), device_w = ToDevice(w);
    const DeviceTensor device_x_scales = ToDevice(x_scales), device_w_scales = ToDevice(w_scales);
    const DeviceTensor y = Output(DType::kF16, {m, kN});
    ASSERT_EQ(cuda::Linear({.x = {.values = device_x.view(), .scales = device_x_scales.view()},
                            .weight = {.data = device_w.view().data,
                                       .dtype = f8,
                                       .out_features = kN,
                                       .in_features = kK,
                                       .scales = device_w_scales.view().as<const float>()},
                            .y = y.view()},
                           stream()),
              Status::Ok());
    const Tensor got = y.ToHost();
    // The library's sums are rounded towards zero at every step, by 8 % of 4,096 equal products
    // (bench/results/cuda-gemm.txt). Beyond float16 they would be infinite.
    constexpr double kBound = 24.5 / 10;
    for (int64_t i = 0; i < m * kN; ++i)  // 448^2 * 4096 / 2^25 = 24.5
      ASSERT_NEAR(got.Get(i), i % kN % 2 == 0 ? 24.5 : -24.5, kBound) << m << " " << i;
  }
}

TEST_F(CudaLinearTest, GatedLinearMultipliesItsBranches) {
  constexpr int64_t kN = 136, kK = 256;
  const Tensor bias = Tensor::Random(DType::kF32, {2 * kN}, 9);
  const DeviceTensor device_bias = ToDevice(bias);
  for (const LinearDTypes& dtypes : kLinearDTypes)
    for (const int64_t m : kSomeRows)
      for (const bool is_adjacent : {true, false}) {
        const Operand x(device(), dtypes.x, m, kK, 1), both(device(), dtypes.w, 2 * kN, kK, 2);
        const Operand apart(device(), dtypes.w, 2 * kN, kK, 2);  // equal, elsewhere
        const Sums sums(device().cpu_pool(), x.values, AsMultiplied(both, dtypes));
        const DeviceTensor workspace = Output(dtypes.model, {m, 2 * kN});
        const DeviceTensor y = Output(dtypes.model, {m, kN});
        TensorView gate_bias = device_bias.view(), up_bias = device_bias.view();
        gate_bias.shape = up_bias.shape = {kN};
        up_bias.data = device_bias.view().as<float>() + kN;
        ASSERT_EQ(cuda::GatedLinear({.x = x.activation(),
                                     .gate = both.weight(0, kN),
                                     .up = (is_adjacent ? both : apart).weight(kN, kN),
                                     .gate_bias = gate_bias,
                                     .up_bias = up_bias,
                                     .y = y.view(),
                                     .workspace = workspace.view()},
                                    stream_for(dtypes.w)),
                  Status::Ok())
            << Name(dtypes, m);
        const Wanted sum = Finish(x, both, dtypes, sums, m, &bias, ActivationKind::kNone);
        const Wanted act = Finish(x, both, dtypes, sums, m, &bias, ActivationKind::kSilu);
        std::vector<double> want, bound;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < kN; ++j) {
            const auto g = static_cast<size_t>(i * 2 * kN + j), u = g + kN;
            want.push_back(act.value[g] * sum.value[u]);
            bound.push_back(act.bound[g] * std::abs(sum.value[u]) +
                            std::abs(act.value[g]) * sum.bound[u] + act.bound[g] * sum.bound[u]);
          }
        ASSERT_TRUE(Near(y.ToHost(), want, bound))
            << Name(dtypes, m) << (is_adjacent ? " adjacent" : " apart");
      }
}

TEST_F(CudaLinearTest, HeadReadsTheRowsAskedFor) {
  constexpr int64_t kN = 1001, kK = 1024, kTokens = 300;
  for (const LinearDTypes& dtypes : kLinearDTypes) {
    if (dtypes.w == DType::kF8E4M3) continue;
    const Operand x(device(), dtypes.x, kTokens, kK, 1), w(device(), dtypes.w, kN, kK, 2);
    for (const int num_rows : {0, 1, 3, 16, 40, 70, 256, 290}) {  // the last in two portions
      const Tensor multiplied = AsMultiplied(w, dtypes);
      std::vector<int> rows;
      Random random(static_cast<uint64_t>(num_rows));
      Tensor chosen(dtypes.x, {num_rows, kK});
      for (int i = 0; i < num_rows; ++i) {
        rows.push_back(random.Below(kTokens));
        for (int64_t k = 0; k < kK; ++k) chosen.Set(i * kK + k, x.values.Get(rows.back() * kK + k));
      }
      const DeviceTensor device_rows = ToDevice(Tensor::Int32(rows));
      const DeviceTensor logits = Output(DType::kF32, {num_rows, kN});
      ASSERT_EQ(cuda::LmHead({.x = x.activation(),
                              .rows = device_rows.view(),
                              .weight = w.weight(),
                              .logits = logits.view()},
                             stream_for(dtypes.w)),
                Status::Ok())
          << Name(dtypes, num_rows);
      const Sums sums(device().cpu_pool(), chosen, multiplied);
      std::vector<double> bound;
      for (const double absolute : sums.absolute)
        bound.push_back(ProductBound(dtypes.x, kK, absolute));
      EXPECT_TRUE(Near(logits.ToHost(), sums.exact, bound)) << Name(dtypes, num_rows);
      EXPECT_TRUE(Intact(logits));
    }
  }
}

// Beside the logits without them: products and a tanh of float32, a few ulp each; the scale may
// come before the product's sums are rounded.
TEST_F(CudaLinearTest, HeadScalesAndCapsItsLogits) {
  constexpr int64_t kN = 1008, kK = 1024, kTokens = 40;
  const Tensor bias = Tensor::Random(DType::kF32, {kN}, 9);
  const DeviceTensor device_bias = ToDevice(bias);
  for (const LinearDTypes& dtypes : kLinearDTypes) {
    const bool is_fp8 = dtypes.w == DType::kF8E4M3;
    const Operand x(device(), is_fp8 ? DType::kBF16 : dtypes.x, kTokens, kK, 1),
        w(device(), dtypes.w, kN, kK, 2);
    for (const int num_rows : {1, 12, 40})
      for (const bool has_bias : {false, true})
        for (const auto& [scale, softcap] :
             {std::pair{1.0F, 2.0F}, {0.125F, 0.0F}, {4.0F, 30.0F}, {1.0F, 1e-3F}}) {
          std::vector<int> rows;
          for (int i = 0; i < num_rows; ++i) rows.push_back(kTokens - 1 - i);
          const DeviceTensor device_rows = ToDevice(Tensor::Int32(rows));
          const DeviceTensor plain = Output(DType::kF32, {num_rows, kN});
          const DeviceTensor logits = Output(DType::kF32, {num_rows, kN});
          LmHeadParams params = {.x = {.values = x.activation().values},
                                 .rows = device_rows.view(),
                                 .weight = w.weight(),
                                 .bias = has_bias ? device_bias.view() : TensorView{},
                                 .logits = plain.view()};
          ASSERT_EQ(cuda::LmHead(params, stream_for(dtypes.w)), Status::Ok());
          params.logits = logits.view();
          params.scale = scale;
          params.softcap = softcap;
          ASSERT_EQ(cuda::LmHead(params, stream_for(dtypes.w)), Status::Ok());
          std::vector<double> want, bound;
          for (const float logit : plain.ToHost().ToFloats()) {
            const double scaled = double{scale} * logit;
            want.push_back(softcap == 0 ? scaled : softcap * std::tanh(scaled / double{softcap}));
            bound.push_back(16 * kUnit * std::abs(want.back()));
          }
          EXPECT_TRUE(Near(logits.ToHost(), want, bound))
              << Name(dtypes, num_rows) << " bias " << has_bias << " scale " << scale << " cap "
              << softcap;
          EXPECT_TRUE(Intact(logits));
        }
  }
}

// FP8 heads read 16-bit rows and round them as Quantize does.
TEST_F(CudaLinearTest, HeadRoundsItsRowsToTheCodesOfFp8Weights) {
  constexpr int64_t kN = 1008, kK = 1024, kTokens = 300;
  const DType f8 = DType::kF8E4M3;
  const Operand w(device(), f8, kN, kK, 2);
  const Tensor bias = Tensor::Random(DType::kF32, {kN}, 9);
  const DeviceTensor device_bias = ToDevice(bias);
  for (const DType model : {DType::kBF16, DType::kF16}) {
    const Operand x(device(), model, kTokens, kK, 1);
    for (const int num_rows : {1, 3, 16, 40, 256, 290}) {  // the last in two portions
      std::vector<int> rows;
      Random random(static_cast<uint64_t>(num_rows));
      Tensor chosen(model, {num_rows, kK});
      for (int i = 0; i < num_rows; ++i) {
        rows.push_back(random.Below(kTokens));
        for (int64_t k = 0; k < kK; ++k) chosen.Set(i * kK + k, x.values.Get(rows.back() * kK + k));
      }
      const DeviceTensor device_chosen = ToDevice(chosen);
      const DeviceTensor codes = Output(f8, {num_rows, kK});
      const DeviceTensor scales = Output(DType::kF32, {num_rows});
      ASSERT_EQ(
          cuda::Quantize({.x = device_chosen.view(), .y = codes.view(), .scales = scales.view()},
                         stream_for(f8)),
          Status::Ok());
      const DeviceTensor device_rows = ToDevice(Tensor::Int32(rows));
      for (const bool has_bias : {false, true}) {
        const DeviceTensor logits = Output(DType::kF32, {num_rows, kN});
        ASSERT_EQ(cuda::LmHead({.x = x.activation(),
                                .rows = device_rows.view(),
                                .weight = w.weight(),
                                .bias = has_bias ? device_bias.view() : TensorView{},
                                .logits = logits.view()},
                               stream_for(f8)),
                  Status::Ok())
            << DTypeName(model) << " " << num_rows;
        const Sums sums(device().cpu_pool(), codes.ToHost(), w.values);
        const Tensor token = scales.ToHost();
        std::vector<double> want, bound;
        for (int64_t i = 0; i < num_rows; ++i)
          for (int64_t j = 0; j < kN; ++j) {
            const auto at = static_cast<size_t>(i * kN + j);
            const double scale = static_cast<double>(token.Get(i)) * w.Scale(j);
            const double product = sums.exact[at] * scale;
            want.push_back(product + (has_bias ? bias.Get(j) : 0));
            bound.push_back(ProductBound(f8, kK, sums.absolute[at]) * scale +
                            4 * kUnit * (std::abs(want.back()) + std::abs(product)));
          }
        EXPECT_TRUE(Near(logits.ToHost(), want, bound)) << DTypeName(model) << " " << num_rows;
        EXPECT_TRUE(Intact(logits));
      }
    }
  }
}

// Without rotation, q, k and v are the product and its bias; rotation is RopeKv's own test.
TEST_F(CudaLinearTest, QkvGoesToWorkspaceAndCache) {
  constexpr int kHeads = 4, kKvHeads = 2, kHeadDim = 64,
                kWidth = (kHeads + 2 * kKvHeads) * kHeadDim;
  constexpr int64_t kK = 256;
  const Tensor bias = Tensor::Random(DType::kF32, {kWidth}, 9);
  const DeviceTensor device_bias = ToDevice(bias);
  for (const LinearDTypes& dtypes : kLinearDTypes)
    for (const int m : {1, 16, 70}) {
      DeviceCache cache(device(), {dtypes.model, kKvHeads, kHeadDim, 16}, {m + 3}, 1);
      cache.Upload();
      const DeviceBatch batch(device(), cache, {{m, m + 3}}, {0});
      const Operand x(device(), dtypes.x, m, kK, 1), w(device(), dtypes.w, kWidth, kK, 2);
      const DeviceTensor workspace = Output(dtypes.model, {m, kWidth});
      const TensorView q = {workspace.view().data, dtypes.model, {m, kHeads, kHeadDim}};
      ASSERT_EQ(cuda::QkvRopeKv({.x = x.activation(),
                                 .weight = w.weight(),
                                 .bias = device_bias.view(),
                                 .num_heads = kHeads,
                                 .batch = batch.view(),
                                 .kv = cache.view(),
                                 .layer = 1,
                                 .workspace = workspace.view(),
                                 .q = q,
                                 .q_stride = kWidth},
                                stream_for(dtypes.w)),
                Status::Ok())
          << Name(dtypes, m);
      const Sums sums(device().cpu_pool(), x.values, AsMultiplied(w, dtypes));
      const Wanted wanted = Finish(x, w, dtypes, sums, m, &bias, ActivationKind::kNone);
      const Tensor got = workspace.ToHost();
      const std::vector<std::byte> pool = cache.Download();
      const auto element = [&](int64_t i) {
        const std::byte* at = pool.data() + static_cast<size_t>(i) * 2;
        return dtypes.model == DType::kF16 ? reinterpret_cast<const Float16*>(at)->ToFloat()
                                           : reinterpret_cast<const BFloat16*>(at)->ToFloat();
      };
      for (int t = 0; t < m; ++t)
        for (int j = 0; j < kWidth; ++j) {
          const int head = j / kHeadDim, dim = j % kHeadDim;
          float value = got.Get(t * kWidth + j);
          if (head >= kHeads)
            value = element(cache.ElementIndex(1, cache.Slot(0, t + 3), head >= kHeads + kKvHeads,
                                               (head - kHeads) % kKvHeads, dim));
          const auto at = static_cast<size_t>(t * kWidth + j);
          ASSERT_NEAR(value, wanted.value[at],
                      AfterRounding(wanted.bound[at], wanted.value[at], dtypes.model))
              << Name(dtypes, m) << " token " << t << " feature " << j;
        }
    }
}

TEST_F(CudaLinearTest, NoTokensNoWork) {
  const Operand w(device(), DType::kBF16, 64, 64, 1);
  const TensorView none = {w.device_values.view().data, DType::kBF16, {0, 64}};
  const TensorView wide = {w.device_values.view().data, DType::kBF16, {0, 128}};
  EXPECT_EQ(cuda::Linear({.x = {.values = none}, .weight = w.weight(), .y = none}, stream()),
            Status::Ok());
  EXPECT_EQ(cuda::GatedLinear({.x = {.values = none},
                               .gate = w.weight(),
                               .up = w.weight(),
                               .y = none,
                               .workspace = wide},
                              stream()),
            Status::Ok());
}

TEST_F(CudaLinearTest, WhatDoesNotFitIsNamed) {
  const Operand x(device(), DType::kBF16, 4, 64, 1), w(device(), DType::kBF16, 32, 64, 2);
  const Operand f8(device(), DType::kF8E4M3, 32, 64, 2), int8(device(), DType::kI8, 32, 64, 2);
  const Operand int4(device(), DType::kI4, 32, 64, 2);
  const DeviceTensor y = Output(DType::kBF16, {4, 32}), narrow = Output(DType::kBF16, {4, 31});
  const auto message = [&](const Activation& input, const Weight& weight,
                           const TensorView& output) {
    const Status status = cuda::Linear({.x = input, .weight = weight, .y = output}, stream());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(message(x.activation(), w.weight(), narrow.view()),
            "y: got bfloat16 [4, 31], needed bfloat16 [4, 32]");
  EXPECT_EQ(message(x.activation(), f8.weight(), y.view()),
            "x: got bfloat16 [4, 64], needed float8_e4m3fn [4, 64]");
  EXPECT_EQ(message({.values = f8.device_values.view()}, f8.weight(), y.view()),
            "x.scales: got no tensor, needed float32 [32]");
  EXPECT_EQ(message(x.activation(), int8.weight(), y.view()),
            "weight: got int8, which this stream was not made for (weight_dtype)");
  EXPECT_EQ(message(x.activation(), int4.weight(), y.view()),
            "weight: got int4, which this stream was not made for (weight_dtype)");
  Weight packed = w.weight();
  packed.layout = WeightLayout::kPanel64Vnni2;
  EXPECT_TRUE(
      message(x.activation(), packed, y.view()).starts_with("weight: got bfloat16 panel64"));
}

}  // namespace
}  // namespace inflight::ops
