// SPDX-License-Identifier: Apache-2.0
#include "ops/add_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda_test.h"

namespace inflight::ops {
namespace {

constexpr float kFactor = 0.5F;  // of pending scales of tokens

enum class Delta : uint8_t { kNone, kPlain, kRaw };

struct NormCase {
  DType dtype;
  int num_tokens;
  int hidden_size;
  bool is_layer_norm = false;
  Delta delta = Delta::kPlain;
  bool is_fp8 = false;
  int offset = 0;
  float factor = 1;  // of the delta
  bool has_norm = true;
  bool in_place = false;  // y is the residual
};

std::string Name(const NormCase& c) {
  return std::string(DTypeName(c.dtype)) + " [" + std::to_string(c.num_tokens) + ", " +
         std::to_string(c.hidden_size) + "]" + (c.is_layer_norm ? " layer_norm" : " rms_norm") +
         (c.delta == Delta::kNone  ? ""
          : c.delta == Delta::kRaw ? " raw delta"
                                   : " delta") +
         (c.is_fp8 ? " to e4m3" : "") + " offset " + std::to_string(c.offset) + " factor " +
         std::to_string(c.factor) + (c.has_norm ? "" : " without a norm") +
         (c.in_place ? " in place" : "");
}

// Sums of a row go through a tree: at most 64 roundings between a term and its sum for the widths
// here, so the kernel's means carry a relative error of kTree, and what is made of them little
// more.
constexpr double kTree = 64 * kUnit;

class CudaAddNormTest : public CudaTest {
 protected:
  void Check(const NormCase& c);
  // y and its scales against the norm, in double, of the residual that the kernel left.
  void CheckNorm(const NormCase& c, const Tensor& residual, const Tensor& weight,
                 const Tensor& bias, const Tensor& y, const Tensor& y_scales);
};

void CudaAddNormTest::Check(const NormCase& c) {
  const Shape shape = {c.num_tokens, c.hidden_size};
  Tensor residual = Tensor::Random(c.dtype, shape, 1);
  const Tensor delta = Tensor::Random(c.dtype, shape, 2);
  if (c.num_tokens > 2)  // the last row is zeros
    for (int64_t i = 0; i < c.hidden_size; ++i)
      residual.Set((c.num_tokens - 1) * int64_t{c.hidden_size} + i, 0);
  const Tensor weight = Tensor::Random(DType::kF32, {c.hidden_size}, 3);
  const Tensor bias = Tensor::Random(DType::kF32, {c.hidden_size}, 4);
  const Tensor token_scales = Tensor::Random(DType::kF32, {c.num_tokens}, 5);
  const Tensor feature_scales = Tensor::Random(DType::kF32, {c.hidden_size}, 6);

  const DeviceTensor x = ToDevice(residual, c.offset);
  const DeviceTensor device_delta = ToDevice(delta, c.offset);
  const DeviceTensor device_weight = ToDevice(weight);
  const DeviceTensor device_bias = ToDevice(bias);
  const DeviceTensor device_tokens = ToDevice(token_scales);
  const DeviceTensor device_features = ToDevice(feature_scales);
  const DeviceTensor y = Output(c.is_fp8 ? DType::kF8E4M3 : c.dtype, shape, c.offset);
  const DeviceTensor y_scales = Output(DType::kF32, {c.num_tokens});
  Norm norm = {.kind = c.is_layer_norm ? NormKind::kLayerNorm : NormKind::kRmsNorm,
               .weight = device_weight.view(),
               .bias = c.is_layer_norm ? device_bias.view() : TensorView{},
               .eps = 1e-5F};
  if (!c.has_norm) norm = {.kind = NormKind::kNone};
  PendingScales pending;
  if (c.delta == Delta::kRaw)
    pending = {device_tokens.view(), device_features.view().as<const float>(), kFactor};
  ASSERT_EQ(cuda::AddNorm({.residual = x.view(),
                           .delta = c.delta == Delta::kNone ? TensorView{} : device_delta.view(),
                           .delta_factor = c.factor,
                           .delta_scales = pending,
                           .norm = norm,
                           .y = c.in_place ? x.view() : y.view(),
                           .y_scales = c.is_fp8 ? y_scales.view() : TensorView{}},
                          stream()),
            Status::Ok());

  // In place a norm leaves no residual to look at: what it is of is what it was given.
  const Tensor left = x.ToHost();
  const Tensor& got = c.in_place && c.has_norm ? residual : left;
  if (c.delta == Delta::kNone) {
    EXPECT_TRUE(SameBits(got.ToFloats(), residual.ToFloats())) << Name(c);
  } else {
    std::vector<float> want;
    std::vector<double> bound;
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      double added = delta.Get(i);
      if (c.delta == Delta::kRaw)
        added *= kFactor * double{token_scales.Get(i / c.hidden_size)} *
                 double{feature_scales.Get(i % c.hidden_size)};
      added *= double{c.factor};
      const double sum = residual.Get(i) + added;
      // Two products and a sum in float32, one rounding to the dtype.
      bound.push_back(
          AfterRounding(4 * kUnit * (std::abs(residual.Get(i)) + std::abs(added)), sum, c.dtype));
      want.push_back(static_cast<float>(sum));
    }
    EXPECT_TRUE(Within(got.ToFloats(), want, bound)) << "residual of " << Name(c);
  }
  CheckNorm(c, got, weight, bias, c.in_place ? x.ToHost() : y.ToHost(), y_scales.ToHost());
  for (const DeviceTensor* tensor : {&x, &device_delta, &y, &y_scales})
    EXPECT_TRUE(Intact(*tensor)) << Name(c);
}

void CudaAddNormTest::CheckNorm(const NormCase& c, const Tensor& residual, const Tensor& weight,
                                const Tensor& bias, const Tensor& y, const Tensor& y_scales) {
  const int64_t n = c.hidden_size;
  std::vector<float> rounded_want;
  std::vector<double> want;
  std::vector<double> bound;
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    double sum = 0;
    double magnitudes = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += residual.Get(t * n + i);
      magnitudes += std::abs(residual.Get(t * n + i));
    }
    const double size = static_cast<double>(n);
    const double center = c.is_layer_norm ? sum / size : 0;
    double squares = 0;
    for (int64_t i = 0; i < n; ++i)
      squares += (residual.Get(t * n + i) - center) * (residual.Get(t * n + i) - center);
    const double scale = 1 / std::sqrt(squares / size + 1e-5);
    double largest = 0;
    double largest_bound = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double x = residual.Get(t * n + i);
      if (!c.has_norm) {
        want.push_back(x);
        bound.push_back(0);
        largest = std::max(largest, std::abs(x));
        continue;
      }
      const double normed = (x - center) * scale * weight.Get(i);
      const double b = c.is_layer_norm ? bias.Get(i) : 0;
      const double center_error =
          c.is_layer_norm ? kTree * magnitudes / size + kUnit * std::abs(x) : 0;
      want.push_back(normed + b);
      bound.push_back(kTree * std::abs(normed) + scale * std::abs(weight.Get(i)) * center_error +
                      2 * kUnit * (std::abs(normed) + std::abs(b)));
      largest = std::max(largest, std::abs(want.back()));
      largest_bound = std::max(largest_bound, bound.back());
    }
    if (!c.is_fp8) continue;
    const double row_scale = std::max(largest, 1.0 / 512) / 448;
    const double got_scale = y_scales.Get(t);
    EXPECT_NEAR(got_scale, row_scale, largest_bound / 448 + 2 * kUnit * row_scale)
        << "token " << t << " of " << Name(c);
    for (int64_t i = t * n; i < (t + 1) * n; ++i) {
      auto& w = want[static_cast<size_t>(i)];
      w /= got_scale;
      bound[static_cast<size_t>(i)] =
          bound[static_cast<size_t>(i)] / got_scale + 4 * kUnit * std::abs(w);
    }
  }
  if (c.is_fp8) {
    EXPECT_TRUE(NearestCodes(y, want, bound)) << Name(c);
    return;
  }
  for (size_t i = 0; i < want.size(); ++i) {
    rounded_want.push_back(static_cast<float>(want[i]));
    bound[i] = AfterRounding(bound[i] + kUnit * std::abs(want[i]), want[i], c.dtype);
  }
  EXPECT_TRUE(Within(y.ToFloats(), rounded_want, bound)) << Name(c);
}

TEST_F(CudaAddNormTest, ResidualAndNormOfEveryWidth) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const int hidden_size : {1, 8, 37, 64, 768, 1016, 4096, 4099, 4104, 8192, 16384, 16392})
      for (const int num_tokens : {1, 5})
        for (const bool is_layer_norm : {false, true})
          for (const bool is_fp8 : {false, true})
            Check({.dtype = dtype,
                   .num_tokens = num_tokens,
                   .hidden_size = hidden_size,
                   .is_layer_norm = is_layer_norm,
                   .is_fp8 = is_fp8});
}

TEST_F(CudaAddNormTest, AbsentAndRawDeltas) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const int hidden_size : {37, 768, 4096, 8192})
      for (const Delta delta : {Delta::kNone, Delta::kRaw})
        for (const bool is_fp8 : {false, true})
          Check({.dtype = dtype,
                 .num_tokens = 5,
                 .hidden_size = hidden_size,
                 .is_layer_norm = is_fp8,
                 .delta = delta,
                 .is_fp8 = is_fp8});
}

TEST_F(CudaAddNormTest, FactorsOfDeltas) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const int hidden_size : {37, 768, 8192})
      for (const Delta delta : {Delta::kPlain, Delta::kRaw})
        for (const bool has_norm : {false, true})
          Check({.dtype = dtype,
                 .num_tokens = 5,
                 .hidden_size = hidden_size,
                 .delta = delta,
                 .factor = 0.22F,
                 .has_norm = has_norm});
}

TEST_F(CudaAddNormTest, SumsWithoutANorm) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const int hidden_size : {37, 768, 8192, 16392})
      for (const Delta delta : {Delta::kNone, Delta::kPlain, Delta::kRaw})
        for (const bool is_fp8 : {false, true})
          for (const bool in_place : {false, true})
            if (!is_fp8 || !in_place)
              Check({.dtype = dtype,
                     .num_tokens = 5,
                     .hidden_size = hidden_size,
                     .delta = delta,
                     .is_fp8 = is_fp8,
                     .has_norm = false,
                     .in_place = in_place});
}

TEST_F(CudaAddNormTest, NormsInPlace) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const int hidden_size : {37, 768, 4096, 8192, 16392})
      for (const bool is_layer_norm : {false, true})
        Check({.dtype = dtype,
               .num_tokens = 5,
               .hidden_size = hidden_size,
               .is_layer_norm = is_layer_norm,
               .delta = Delta::kNone,
               .in_place = true});
}

TEST_F(CudaAddNormTest, ManyRows) {
  Check({.dtype = DType::kBF16, .num_tokens = 700, .hidden_size = 768});
  Check({.dtype = DType::kBF16, .num_tokens = 300, .hidden_size = 1024, .is_fp8 = true});
}

TEST_F(CudaAddNormTest, TensorsMayLieAtAnyAddress) {
  for (const bool is_fp8 : {false, true})
    Check(
        {.dtype = DType::kBF16, .num_tokens = 3, .hidden_size = 64, .is_fp8 = is_fp8, .offset = 1});
}

// The square of the largest bfloat16 is infinite in float32, its norm then 0; float16 has room.
TEST_F(CudaAddNormTest, LargestNumbersGiveFiniteRows) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const float largest = dtype == DType::kF16 ? 65504.0F : 0x1.fep127F;
    Tensor host(dtype, {2, 4096});
    for (int64_t i = 0; i < 2 * 4096; ++i) host.Set(i, i % 3 == 0 ? -largest : largest);
    const DeviceTensor x = ToDevice(host);
    const DeviceTensor weight = ToDevice(Tensor::Random(DType::kF32, {4096}, 1));
    const DeviceTensor y = Output(dtype, {2, 4096});
    const DeviceTensor codes = Output(DType::kF8E4M3, {2, 4096});
    const DeviceTensor scales = Output(DType::kF32, {2});
    AddNormParams params = {.residual = x.view(), .norm = {.weight = weight.view()}, .y = y.view()};
    ASSERT_EQ(cuda::AddNorm(params, stream()), Status::Ok());
    params.y = codes.view();
    params.y_scales = scales.view();
    ASSERT_EQ(cuda::AddNorm(params, stream()), Status::Ok());
    for (const Tensor& got : {y.ToHost(), codes.ToHost(), scales.ToHost()})
      for (const float v : got.ToFloats()) ASSERT_TRUE(std::isfinite(v)) << DTypeName(dtype);
  }
}

TEST_F(CudaAddNormTest, ATokenIsTheSameAloneAndInABatch) {
  constexpr int64_t kHidden = 4096;
  const Tensor host = Tensor::Random(DType::kBF16, {33, kHidden}, 1);
  const DeviceTensor x = ToDevice(host);
  const DeviceTensor weight = ToDevice(Tensor::Random(DType::kF32, {kHidden}, 3));
  const DeviceTensor together = Output(DType::kBF16, {33, kHidden});
  const DeviceTensor alone = Output(DType::kBF16, {1, kHidden});
  const Norm norm = {.weight = weight.view()};
  ASSERT_EQ(cuda::AddNorm({.residual = x.view(), .norm = norm, .y = together.view()}, stream()),
            Status::Ok());
  const TensorView row = {x.view().as<BFloat16>() + 32 * kHidden, DType::kBF16, {1, kHidden}};
  ASSERT_EQ(cuda::AddNorm({.residual = row, .norm = norm, .y = alone.view()}, stream()),
            Status::Ok());
  const std::vector<float> all = together.ToHost().ToFloats();
  EXPECT_TRUE(SameBits(alone.ToHost().ToFloats(), {all.begin() + 32 * kHidden, all.end()}));
}

TEST_F(CudaAddNormTest, WhatDoesNotFitIsRefused) {
  const DeviceTensor x = Output(DType::kBF16, {2, 8});
  const DeviceTensor weight = Output(DType::kF32, {8});
  const DeviceTensor y = Output(DType::kF8E4M3, {2, 8});
  AddNormParams params = {.residual = x.view(), .norm = {.weight = weight.view()}, .y = y.view()};
  EXPECT_EQ(cuda::AddNorm(params, stream()),
            InvalidArgument("y_scales: got no tensor, needed float32 [2]"));
  params.residual.dtype = DType::kF32;
  EXPECT_EQ(cuda::AddNorm(params, stream()).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(cuda::AddNorm({.residual = {.dtype = DType::kBF16, .shape = {0, 8}},
                           .norm = {.weight = weight.view()},
                           .y = {.dtype = DType::kBF16, .shape = {0, 8}}},
                          stream()),
            Status::Ok());
}

}  // namespace
}  // namespace inflight::ops
