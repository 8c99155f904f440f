// SPDX-License-Identifier: Apache-2.0
// Experts in float4 with exponents of groups (MXFP4): the bits that the same weights in 16 bits
// give, which a code and a power of two stand for exactly; and the reference's numbers.
#include <gmock/gmock.h>

#include <vector>

#include "expert_cases.h"
#include "ops/tensor_core_order.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

using testing::HasSubstr;

using CudaFloat4ExpertsTest = ExpertsTest;

constexpr int kGroup = 32;

// Random codes and exponents of a row-major weight, and what they stand for.
struct Float4Operand {
  // Exponents from `lowest` on, `num_exponents` of them.
  Float4Operand(Device& device, int64_t rows, int64_t width, DType dtype, uint64_t seed,
                int lowest = 118, int num_exponents = 5)
      : codes(static_cast<size_t>(rows * width / 2)),
        exponents(static_cast<size_t>(rows * width / kGroup)),
        wide(dtype, {rows, width}),
        device_codes(device, DType::kU8, {rows, width / 2}),
        device_exponents(device, DType::kU8, {rows, width / kGroup}),
        device_wide() {
    Random random(seed);
    for (uint8_t& two : codes) two = static_cast<uint8_t>(random.Below(256));
    for (uint8_t& e : exponents) e = static_cast<uint8_t>(lowest + random.Below(num_exponents));
    for (int64_t i = 0; i < rows * width; ++i) wide.Set(i, Value(i));
    Must(device.Copy(device_codes.view().data, codes.data(), codes.size()));
    Must(device.Copy(device_exponents.view().data, exponents.data(), exponents.size()));
    device_wide = {device, wide};
    ordered = {.data = device_codes.view().data,
               .dtype = DType::kF4E2M1,
               .out_features = rows,
               .in_features = width,
               .exponents = device_exponents.view().as<const uint8_t>(),
               .group_size = kGroup};
    Must(OrderForTensorCores(device, &ordered));
  }

  // Element i, counted over all rows.
  float Value(int64_t i) const {
    const int code = codes[static_cast<size_t>(i / 2)] >> (i % 2 * 4) & 0xf;
    const float half = HalfOfE8M0(std::byte{exponents[static_cast<size_t>(i / kGroup)]});
    return static_cast<float>(kTwiceE2M1[static_cast<size_t>(code)]) * half;
  }

  std::vector<uint8_t> codes, exponents;
  Tensor wide;
  DeviceTensor device_codes, device_exponents, device_wide;
  Weight ordered;
};

struct Float4Layer {
  Float4Layer(Device& device, const ExpertCase& c, DType dtype, int lowest = 118,
              int num_exponents = 5)
      : x(Tensor::Random(dtype, {c.num_tokens, c.hidden}, 23)),
        fc(device, int64_t{c.NumExperts()} * 2 * c.inner, c.hidden, dtype, 24, lowest,
           num_exponents),
        proj(device, int64_t{c.NumExperts()} * c.hidden, c.inner, dtype, 25, lowest, num_exponents),
        fc_bias(Tensor::Random(DType::kF32, {c.NumExperts() * 2 * c.inner}, 26)),
        proj_bias(Tensor::Random(DType::kF32, {c.NumExperts() * c.hidden}, 27)),
        device_x(device, x),
        device_fc_bias(device, fc_bias),
        device_proj_bias(device, proj_bias) {}

  Tensor x;
  Float4Operand fc, proj;
  Tensor fc_bias, proj_bias;
  DeviceTensor device_x, device_fc_bias, device_proj_bias;
};

class Float4Runs : public CudaFloat4ExpertsTest {
 protected:
  struct Outputs {
    DeviceTensor inner, parts, y;
  };
  // Both halves, of the codes or of the weights that they stand for. `inner`: what the second half
  // reads; null: what the first one wrote.
  Outputs Run(const ExpertCase& c, const Float4Layer& layer, const DeviceLists& lists, DType dtype,
              bool is_float4, const DeviceTensor* inner = nullptr) {
    Outputs out = {.inner = Output(dtype, {c.NumPlaces(), c.inner}),
                   .parts = Output(DType::kF32, {c.NumPlaces(), c.hidden}),
                   .y = Output(DType::kF32, {c.num_tokens, c.hidden})};
    ExpertGatedLinearParams gated =
        Gated(c, layer.device_x.view(), lists.view(), layer.fc.device_wide.view(),
              layer.device_fc_bias.view(), out.inner.view());
    if (is_float4) gated.weight = layer.fc.ordered;
    EXPECT_EQ(cuda::ExpertGatedLinear(gated, stream()), Status::Ok());
    const DeviceTensor& read = inner == nullptr ? out.inner : *inner;
    ExpertLinearParams down = Down(c, read.view(), lists.view(), layer.proj.device_wide.view(),
                                   layer.device_proj_bias.view(), out.y.view());
    down.workspace = out.parts.view();
    if (is_float4) down.weight = layer.proj.ordered;
    EXPECT_EQ(cuda::ExpertLinear(down, stream()), Status::Ok());
    return out;
  }
};

// What exercises the stages of every tile: fewer elements of k than one has, a part of the last
// one, many.
constexpr ExpertCase kLongRows[] = {
    {"long_rows_of_one", 1, 4, 2, 1088, 320, 0, true, 7},
    {"long_rows_of_eight", 8, 4, 4, 1344, 704, 0, true, 7},
    {"long_rows_of_some", 37, 4, 2, 832, 448, 0, true, 7},
    {"long_rows_of_many", 260, 5, 2, 576, 960, 0, true, 7},
    {"long_rows_of_all", 600, 4, 2, 640, 576, 0, true, 7},
};

std::vector<ExpertCase> AllCases() {
  std::vector<ExpertCase> cases(std::begin(kExpertCases), std::end(kExpertCases));
  cases.insert(cases.end(), std::begin(kLongRows), std::end(kLongRows));
  return cases;
}

TEST_F(Float4Runs, BitsAreThoseOfTheWidenedWeights) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const ExpertCase& c : AllCases()) {
      SCOPED_TRACE(std::string(c.name) + " " + std::string(DTypeName(dtype)));
      const Float4Layer layer(device(), c, dtype);
      const DeviceLists lists(device(), c);
      Route(c, LogitsOf(c), lists);
      const Outputs want = Run(c, layer, lists, dtype, /*is_float4=*/false);
      const Outputs got = Run(c, layer, lists, dtype, /*is_float4=*/true, &want.inner);
      Synchronize();
      if (c.num_tokens == 0) continue;
      EXPECT_TRUE(SameBits(got.inner.ToHost().ToFloats(), want.inner.ToHost().ToFloats()));
      EXPECT_TRUE(SameBits(got.parts.ToHost().ToFloats(), want.parts.ToHost().ToFloats()));
      EXPECT_TRUE(SameBits(got.y.ToHost().ToFloats(), want.y.ToHost().ToFloats()));
      for (const DeviceTensor* out : {&got.inner, &got.parts, &got.y}) EXPECT_TRUE(Intact(*out));
      EXPECT_TRUE(Intact(layer.fc.device_codes));
      EXPECT_TRUE(Intact(layer.fc.device_exponents));
    }
}

// Below the normal numbers of either dtype, above what one step of widening takes, and up to the
// largest numbers of the dtype.
TEST_F(Float4Runs, EveryExponentIsWidenedAsFloat32Is) {
  const ExpertCase c = {"", 11, 3, 2, 192, 128};
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (int lowest = 0; lowest < (dtype == DType::kBF16 ? 248 : 136); lowest += 4) {
      SCOPED_TRACE(std::to_string(lowest) + " " + std::string(DTypeName(dtype)));
      const Float4Layer layer(device(), c, dtype, lowest, 4);
      const DeviceLists lists(device(), c);
      Route(c, LogitsOf(c), lists);
      const DeviceTensor inner = ToDevice(Tensor::Random(dtype, {c.NumPlaces(), c.inner}, 28));
      const Outputs want = Run(c, layer, lists, dtype, /*is_float4=*/false, &inner);
      const Outputs got = Run(c, layer, lists, dtype, /*is_float4=*/true, &inner);
      EXPECT_TRUE(SameBits(got.parts.ToHost().ToFloats(), want.parts.ToHost().ToFloats()));
    }
}

TEST_F(Float4Runs, BothHalvesAgreeWithTheReference) {
  const DType dtype = DType::kBF16;
  for (const ExpertCase& c : AllCases()) {
    if (c.num_tokens == 0) continue;
    SCOPED_TRACE(c.name);
    const Float4Layer layer(device(), c, dtype);
    const DeviceLists lists(device(), c);
    Route(c, LogitsOf(c), lists);
    const Outputs got = Run(c, layer, lists, dtype, /*is_float4=*/true);
    const Tensor begins = lists.begins.ToHost(), tokens = lists.tokens.ToHost();
    const Tensor weights = lists.weights.ToHost();
    const ExpertRoutes routes = {begins.view(), tokens.view(), weights.view(), {}};
    const Tensor x = InFloat32(layer.x), fc = InFloat32(layer.fc.wide),
                 proj = InFloat32(layer.proj.wide);
    const Tensor want_inner(DType::kF32, {c.NumPlaces(), c.inner});
    ASSERT_EQ(
        ReferenceTable().expert_gated_linear(
            Gated(c, x.view(), routes, fc.view(), layer.fc_bias.view(), want_inner.view()), host()),
        Status::Ok());
    const double largest = LargestOf(fc);
    const double most = 4 * std::sqrt(c.hidden) * largest + 1;  // of either branch, with a bias
    const double error = RandomSumBound(c.hidden, largest) + 2 * kUnit * most;
    std::vector<double> bound;
    for (const float want : want_inner.ToFloats())
      bound.push_back(RoundedBound(3 * error * most + 0x1p-18 * std::abs(want), want, dtype));
    const Tensor got_inner = got.inner.ToHost();
    EXPECT_TRUE(Within(got_inner.ToFloats(), want_inner.ToFloats(), bound));

    const Tensor read = InFloat32(got_inner);
    const Tensor want(DType::kF32, {c.num_tokens, c.hidden});
    ASSERT_EQ(
        ReferenceTable().expert_linear(
            Down(c, read.view(), routes, proj.view(), layer.proj_bias.view(), want.view()), host()),
        Status::Ok());
    const double sum =
        2 * RandomSumBound(c.inner + c.NumExperts(), LargestOf(read) * LargestOf(proj)) +
        16 * kUnit;
    EXPECT_TRUE(Within(got.y.ToHost().ToFloats(), want.ToFloats(),
                       std::vector<double>(want.ToFloats().size(), sum)));
  }
}

TEST_F(Float4Runs, WeightsThatAreNotInOrderAreNamed) {
  const ExpertCase c = {"", 2, 3, 2, 64, 64};
  const Float4Layer layer(device(), c, DType::kBF16);
  const DeviceLists lists(device(), c);
  const DeviceTensor inner = Output(DType::kBF16, {4, 64});
  ExpertGatedLinearParams gated =
      Gated(c, layer.device_x.view(), lists.view(), layer.fc.device_wide.view(),
            layer.device_fc_bias.view(), inner.view());
  gated.weight = layer.fc.ordered;
  gated.weight.layout = WeightLayout::kRowMajor;
  EXPECT_THAT(cuda::ExpertGatedLinear(gated, stream()).message(),
              HasSubstr("weight: got float4_e2m1fn row_major"));
  gated.weight = layer.fc.ordered;
  gated.weight.exponents = nullptr;
  EXPECT_THAT(cuda::ExpertGatedLinear(gated, stream()).message(),
              HasSubstr("float4 with exponents of groups of 32, tensor_core"));
}

}  // namespace
}  // namespace inflight::ops
