// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "cuda_test.h"

namespace inflight::ops {
namespace {

constexpr float kFactor = 0.5F;  // of pending scales of tokens

double ActivateExactly(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kGelu:
      return 0.5 * x * std::erfc(-x / M_SQRT2);
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kNone:
      break;
  }
  return x;
}

// What the kernels' activations may err (activate.cuh), of an argument that errs by `bound`; no
// slope exceeds 1.2.
double ActivationBound(double x, double bound) { return 1.2 * bound + 0x1p-20 * std::abs(x); }

struct GateCase {
  DType dtype;
  int num_tokens;
  int n;
  ActivationKind activation = ActivationKind::kSilu;
  bool is_fp8 = false;
  bool is_raw = false;  // scales are pending
  bool has_gate_bias = false;
  bool has_up_bias = false;
  int offset = 0;
  float gate_size = 4;  // of the random values
};

class CudaGateTest : public CudaTest {
 protected:
  void Check(const GateCase& c);
};

struct GateInputs {
  explicit GateInputs(const GateCase& c)
      : gate_up(Tensor::Random(c.dtype, {c.num_tokens, 2 * c.n}, 1)),
        token_scales(Tensor::Random(DType::kF32, {c.num_tokens}, 2)),
        gate_scales(Tensor::Random(DType::kF32, {c.n}, 3)),
        up_scales(Tensor::Random(DType::kF32, {c.n}, 4)),
        gate_bias(Tensor::Random(DType::kF32, {c.n}, 5)),
        up_bias(Tensor::Random(DType::kF32, {c.n}, 6)) {
    const int64_t n = c.n;
    for (int64_t t = 0; t < c.num_tokens; ++t)
      for (int64_t i = 0; i < n; ++i)
        gate_up.Set(t * 2 * n + i, t == 2 ? 0 : gate_up.Get(t * 2 * n + i) * c.gate_size);
  }

  Tensor gate_up;                                     // [num_tokens, 2 n] token 2: gates of zero
  Tensor token_scales;                                // [num_tokens]
  Tensor gate_scales, up_scales, gate_bias, up_bias;  // [n]
};

struct ExpectedProducts {
  std::vector<double> want;   // [num_tokens, n] in units of the scale that a token of E4M3 got
  std::vector<double> bound;  // of their errors
};

// Looks at the scales too, which are compared here.
ExpectedProducts Expected(const GateCase& c, const GateInputs& in, const Tensor& got_scales) {
  const int64_t n = c.n;
  ExpectedProducts expected;
  auto& [want, bound] = expected;
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    double largest = 1.0 / 512;
    double largest_bound = 0;
    for (int64_t i = 0; i < n; ++i) {
      double gate = in.gate_up.Get(t * 2 * n + i);
      double up = in.gate_up.Get(t * 2 * n + n + i);
      if (c.is_raw) {
        gate *= kFactor * double{in.token_scales.Get(t)} * double{in.gate_scales.Get(i)};
        up *= kFactor * double{in.token_scales.Get(t)} * double{in.up_scales.Get(i)};
      }
      const double gate_bias_i = c.has_gate_bias ? in.gate_bias.Get(i) : 0;
      const double up_bias_i = c.has_up_bias ? in.up_bias.Get(i) : 0;
      const double gate_error = 4 * kUnit * (std::abs(gate) + std::abs(gate_bias_i));
      const double up_error = 4 * kUnit * (std::abs(up) + std::abs(up_bias_i));
      gate += gate_bias_i;
      up += up_bias_i;
      const double activated = ActivateExactly(c.activation, gate);
      want.push_back(activated * up);
      bound.push_back(std::abs(activated) * up_error +
                      (std::abs(up) + up_error) * ActivationBound(gate, gate_error) +
                      kUnit * std::abs(want.back()) + 1e-37);
      largest = std::max(largest, std::abs(want.back()));
      largest_bound = std::max(largest_bound, bound.back());
    }
    if (!c.is_fp8) continue;
    const double scale = got_scales.Get(t);
    EXPECT_NEAR(scale, largest / 448, (largest_bound + 2 * kUnit * largest) / 448) << "token " << t;
    for (size_t i = static_cast<size_t>(t * n); i < static_cast<size_t>((t + 1) * n); ++i) {
      want[i] /= scale;
      bound[i] = bound[i] / scale + 4 * kUnit * std::abs(want[i]);
    }
  }
  return expected;
}

void CudaGateTest::Check(const GateCase& c) {
  SCOPED_TRACE(testing::Message() << DTypeName(c.dtype) << " [" << c.num_tokens << ", " << c.n
                                  << "] activation " << static_cast<int>(c.activation) << " e4m3 "
                                  << c.is_fp8 << " raw " << c.is_raw << " bias " << c.has_gate_bias
                                  << c.has_up_bias << " offset " << c.offset);
  const int64_t n = c.n;
  const GateInputs in(c);
  const DeviceTensor x = ToDevice(in.gate_up, c.offset);
  const DeviceTensor tokens = ToDevice(in.token_scales);
  const DeviceTensor gates = ToDevice(in.gate_scales);
  const DeviceTensor ups = ToDevice(in.up_scales);
  const DeviceTensor device_gate_bias = ToDevice(in.gate_bias);
  const DeviceTensor device_up_bias = ToDevice(in.up_bias);
  const DeviceTensor y = Output(c.is_fp8 ? DType::kF8E4M3 : c.dtype, {c.num_tokens, n}, c.offset);
  const DeviceTensor y_scales = Output(DType::kF32, {c.num_tokens});
  const auto floats = [](bool use, const DeviceTensor& tensor) {
    return use ? tensor.view().as<const float>() : nullptr;
  };
  ASSERT_EQ(cuda::Gate({.gate_up = x.view().data,
                        .dtype = c.dtype,
                        .num_tokens = c.num_tokens,
                        .n = n,
                        .token_scales = floats(c.is_raw, tokens),
                        .token_factor = kFactor,
                        .gate_scales = floats(c.is_raw, gates),
                        .up_scales = floats(c.is_raw, ups),
                        .gate_bias = floats(c.has_gate_bias, device_gate_bias),
                        .up_bias = floats(c.has_up_bias, device_up_bias),
                        .activation = c.activation,
                        .y = y.view(),
                        .y_scales = c.is_fp8 ? y_scales.view() : TensorView{}},
                       stream()),
            Status::Ok());

  auto [want, bound] = Expected(c, in, y_scales.ToHost());
  const Tensor got = y.ToHost();
  if (c.is_fp8) {
    EXPECT_TRUE(NearestCodes(got, want, bound));
  } else {
    std::vector<float> float_want;
    for (size_t i = 0; i < want.size(); ++i) {
      float_want.push_back(static_cast<float>(want[i]));
      bound[i] = AfterRounding(bound[i] + kUnit * std::abs(want[i]), want[i], c.dtype);
    }
    EXPECT_TRUE(Within(got.ToFloats(), float_want, bound));
  }
  EXPECT_TRUE(Intact(y));
  EXPECT_TRUE(Intact(y_scales));
}

TEST_F(CudaGateTest, ProductsOfEveryWidth) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const bool is_fp8 : {false, true})
      for (const int n : {1, 8, 100, 104, 2048, 4096, 8192, 14336, 32768, 32776})
        for (const int num_tokens : {1, 3})
          Check({.dtype = dtype, .num_tokens = num_tokens, .n = n, .is_fp8 = is_fp8});
}

TEST_F(CudaGateTest, ActivationsScalesAndBiases) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const ActivationKind activation :
         {ActivationKind::kNone, ActivationKind::kRelu, ActivationKind::kGelu,
          ActivationKind::kGeluTanh, ActivationKind::kSilu})
      for (const int n : {36, 256})
        for (int flags = 0; flags < 16; ++flags)
          Check({.dtype = dtype,
                 .num_tokens = 5,
                 .n = n,
                 .activation = activation,
                 .is_fp8 = (flags & 1) != 0,
                 .is_raw = (flags & 2) != 0,
                 .has_gate_bias = (flags & 4) != 0,
                 .has_up_bias = (flags & 8) != 0});
}

TEST_F(CudaGateTest, ManyTokensOddAddressesAndSteepGates) {
  Check({.dtype = DType::kBF16, .num_tokens = 600, .n = 512});
  Check({.dtype = DType::kBF16, .num_tokens = 600, .n = 512, .is_fp8 = true});
  for (const int num_tokens : {1, 2, 18, 35, 131})  // rows that clusters share
    Check({.dtype = DType::kBF16,
           .num_tokens = num_tokens,
           .n = 3080,
           .is_fp8 = true,
           .is_raw = true,
           .has_gate_bias = num_tokens % 2 == 0});
  for (const bool is_fp8 : {false, true})
    Check({.dtype = DType::kF16, .num_tokens = 3, .n = 64, .is_fp8 = is_fp8, .offset = 1});
  for (const ActivationKind activation : {ActivationKind::kGeluTanh, ActivationKind::kSilu}) {
    for (const float size : {60.0F, 300.0F, 30000.0F})
      Check({.dtype = DType::kF16,
             .num_tokens = 2,
             .n = 128,
             .activation = activation,
             .gate_size = size});
    Check({.dtype = DType::kBF16,
           .num_tokens = 2,
           .n = 128,
           .activation = activation,
           .gate_size = 1e37F});
  }
}

// One token of e4m3 goes to a cluster of CTAs, where the GPU has them; 300 go to a CTA each.
TEST_F(CudaGateTest, ATokenIsTheSameAloneAndInABatch) {
  constexpr int64_t kTokens = 300;
  constexpr int64_t kN = 4096;
  const DeviceTensor x = ToDevice(Tensor::Random(DType::kBF16, {kTokens, 2 * kN}, 1));
  const DeviceTensor tokens = ToDevice(Tensor::Random(DType::kF32, {kTokens}, 2));
  const DeviceTensor features = ToDevice(Tensor::Random(DType::kF32, {2 * kN}, 3));
  const DeviceTensor together = Output(DType::kF8E4M3, {kTokens, kN});
  const DeviceTensor alone = Output(DType::kF8E4M3, {1, kN});
  const DeviceTensor scales = Output(DType::kF32, {kTokens});
  const DeviceTensor scale = Output(DType::kF32, {1});
  cuda::GateParams params = {.gate_up = x.view().data,
                             .dtype = DType::kBF16,
                             .num_tokens = kTokens,
                             .n = kN,
                             .token_scales = tokens.view().as<const float>(),
                             .gate_scales = features.view().as<const float>(),
                             .up_scales = features.view().as<const float>() + kN,
                             .y = together.view(),
                             .y_scales = scales.view()};
  ASSERT_EQ(cuda::Gate(params, stream()), Status::Ok());
  params.gate_up = x.view().as<BFloat16>() + (kTokens - 1) * 2 * kN;
  params.token_scales += kTokens - 1;
  params.num_tokens = 1;
  params.y = alone.view();
  params.y_scales = scale.view();
  ASSERT_EQ(cuda::Gate(params, stream()), Status::Ok());
  EXPECT_EQ(scale.ToHost().Get(0), scales.ToHost().Get(kTokens - 1));
  const std::vector<float> all = together.ToHost().ToFloats();
  EXPECT_TRUE(SameBits(alone.ToHost().ToFloats(), {all.end() - kN, all.end()}));
}

TEST_F(CudaGateTest, NoTokensAreNoWork) {
  EXPECT_EQ(cuda::Gate({.n = 8, .y = {.dtype = DType::kBF16, .shape = {0, 8}}}, stream()),
            Status::Ok());
}

struct EpilogueCase {
  DType dtype;
  int m;
  int n;
  ActivationKind activation = ActivationKind::kNone;
  bool has_token_scales = false;
  bool has_feature_scales = false;
  bool has_bias = false;
  int offset = 0;
};

class CudaEpilogueTest : public CudaTest {
 protected:
  void Check(const EpilogueCase& c);
};

void CudaEpilogueTest::Check(const EpilogueCase& c) {
  const Tensor host = Tensor::Random(c.dtype, {c.m, c.n}, 1);
  const Tensor token_scales = Tensor::Random(DType::kF32, {c.m}, 2);
  const Tensor feature_scales = Tensor::Random(DType::kF32, {c.n}, 3);
  const Tensor bias = Tensor::Random(DType::kF32, {c.n}, 4);
  const DeviceTensor y = ToDevice(host, c.offset);
  const DeviceTensor tokens = ToDevice(token_scales);
  const DeviceTensor features = ToDevice(feature_scales);
  const DeviceTensor device_bias = ToDevice(bias);
  const auto floats = [](bool use, const DeviceTensor& tensor) {
    return use ? tensor.view().as<const float>() : nullptr;
  };
  ASSERT_EQ(cuda::Epilogue({.y = y.view().data,
                            .dtype = c.dtype,
                            .m = c.m,
                            .n = c.n,
                            .token_scales = floats(c.has_token_scales, tokens),
                            .token_factor = kFactor,
                            .feature_scales = floats(c.has_feature_scales, features),
                            .bias = floats(c.has_bias, device_bias),
                            .activation = c.activation},
                           stream()),
            Status::Ok());
  std::vector<float> want;
  std::vector<double> bound;
  for (int64_t i = 0; i < host.view().num_elements(); ++i) {
    double x = host.Get(i);
    if (c.has_token_scales) x *= kFactor * double{token_scales.Get(i / c.n)};
    if (c.has_feature_scales) x *= feature_scales.Get(i % c.n);
    const double b = c.has_bias ? bias.Get(i % c.n) : 0;
    const double error = 4 * kUnit * (std::abs(x) + std::abs(b));
    const double y_exact = ActivateExactly(c.activation, x + b);
    want.push_back(static_cast<float>(y_exact));
    bound.push_back(
        AfterRounding(ActivationBound(x + b, error) + kUnit * std::abs(y_exact), y_exact, c.dtype));
  }
  EXPECT_TRUE(Within(y.ToHost().ToFloats(), want, bound))
      << DTypeName(c.dtype) << " [" << c.m << ", " << c.n << "] activation "
      << static_cast<int>(c.activation) << " scales " << c.has_token_scales << c.has_feature_scales
      << " bias " << c.has_bias << " offset " << c.offset;
  EXPECT_TRUE(Intact(y));
}

TEST_F(CudaEpilogueTest, EveryCombination) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32})
    for (const ActivationKind activation :
         {ActivationKind::kNone, ActivationKind::kRelu, ActivationKind::kGelu,
          ActivationKind::kGeluTanh, ActivationKind::kSilu})
      for (int flags = 0; flags < 8; ++flags)
        for (const int n : {37, 264})
          Check({.dtype = dtype,
                 .m = 3,
                 .n = n,
                 .activation = activation,
                 .has_token_scales = (flags & 1) != 0,
                 .has_feature_scales = (flags & 2) != 0,
                 .has_bias = (flags & 4) != 0});
}

TEST_F(CudaEpilogueTest, WideManyAndMisalignedRows) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    Check({.dtype = dtype, .m = 1, .n = 50257, .has_bias = true});
    Check({.dtype = dtype, .m = 2, .n = 28672, .has_feature_scales = true});
    Check({.dtype = dtype, .m = 700, .n = 64, .has_token_scales = true});
    Check({.dtype = dtype, .m = 3, .n = 64, .has_bias = true, .offset = 1});
  }
  EXPECT_EQ(cuda::Epilogue({.m = 0, .n = 8}, stream()), Status::Ok());
}

}  // namespace
}  // namespace inflight::ops
