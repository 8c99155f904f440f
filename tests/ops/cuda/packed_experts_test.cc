// SPDX-License-Identifier: Apache-2.0
// Experts in float4 with exponents of groups (MXFP4), in FP8 in groups, and in int8 and int4: the
// bits that the same weights, rounded to 16 bits, give; and the reference's numbers.
#include <gmock/gmock.h>

#include <vector>

#include "expert_cases.h"
#include "ops/tensor_core_order.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

using testing::HasSubstr;

constexpr DType kF4 = DType::kF4E2M1;
constexpr DType kF8 = DType::kF8E4M3;

struct PackedForm {
  DType codes;
  int64_t group;  // 0: a scale for each row
  bool has_offsets = false;

  int64_t GroupOf(int64_t width) const { return group == 0 ? width : group; }
};
constexpr PackedForm kMxfp4 = {kF4, 32};

std::string NameOf(const PackedForm& form) {
  return std::string(DTypeName(form.codes)) +
         (form.group == 0 ? "_rows" : "_groups_of_" + std::to_string(form.group)) +
         (form.has_offsets ? "_with_offsets" : "");
}

// Random codes and scales of a row-major weight, and what they stand for.
struct PackedOperand {
  // Of float4 exponents from `lowest` on, `num_exponents` of them.
  PackedOperand(Device& device, const PackedForm& of, int64_t rows, int64_t width, DType dtype,
                uint64_t seed, int lowest, int num_exponents)
      : form(of),
        group(of.GroupOf(width)),
        codes(BytesOf(form.codes, rows * width)),
        exponents(static_cast<size_t>(rows * width / group)),
        scales(Tensor::Random(DType::kF32, {rows, width / group}, seed + 1)),
        offsets(Tensor::Random(DType::kF32, {rows, width / group}, seed + 2)),
        wide(dtype, {rows, width}),
        device_codes(device, DType::kU8, {static_cast<int64_t>(codes.size())}),
        device_exponents(device, DType::kU8, {rows, width / group}) {
    Random random(seed);
    for (uint8_t& code : codes) {
      code = static_cast<uint8_t>(random.Below(256));
      if (form.codes == kF8 && (code & 0x7f) == 0x7f) code = 0;  // NaN
    }
    for (uint8_t& e : exponents) e = static_cast<uint8_t>(lowest + random.Below(num_exponents));
    for (int64_t i = 0; i < rows * width / group; ++i) {
      scales.Set(i, (scales.Get(i) + 1.25F) * 0x1p-11F);
      offsets.Set(i, offsets.Get(i) * 0x1p-5F);
    }
    for (int64_t i = 0; i < rows * width; ++i) wide.Set(i, Value(i));
    Must(device.Copy(device_codes.view().data, codes.data(), codes.size()));
    Must(device.Copy(device_exponents.view().data, exponents.data(), exponents.size()));
    device_scales = {device, scales};
    device_offsets = {device, offsets};
    device_wide = {device, wide};
    ordered = {.data = device_codes.view().data,
               .dtype = form.codes,
               .out_features = rows,
               .in_features = width,
               .group_size = form.group};
    if (form.codes == kF4)
      ordered.exponents = device_exponents.view().as<const uint8_t>();
    else
      ordered.scales = device_scales.view().as<const float>();
    if (form.has_offsets) {
      ordered.offsets = device_offsets.view().as<const float>();
      ordered.group_size = group;
    }
    Must(OrderForTensorCores(device, &ordered));
  }

  // Element i, counted over all rows.
  float Value(int64_t i) const {
    const float scale = scales.Get(i / group);
    const float offset = form.has_offsets ? offsets.Get(i / group) : 0;
    if (form.codes == kF8) return LoadFloat(codes.data(), kF8, i) * scale;
    if (form.codes == DType::kI8)
      return std::fma(static_cast<float>(static_cast<int8_t>(codes[static_cast<size_t>(i)])), scale,
                      offset);
    const int code = codes[static_cast<size_t>(i / 2)] >> (i % 2 * 4) & 0xf;
    if (form.codes == DType::kI4)
      return std::fma(static_cast<float>(code < 8 ? code : code - 16), scale, offset);
    const float half = HalfOfE8M0(std::byte{exponents[static_cast<size_t>(i / group)]});
    return static_cast<float>(kTwiceE2M1[static_cast<size_t>(code)]) * half;
  }

  PackedForm form;
  int64_t group;
  std::vector<uint8_t> codes, exponents;
  Tensor scales, offsets, wide;
  DeviceTensor device_codes, device_exponents, device_scales, device_offsets, device_wide;
  Weight ordered;
};

struct PackedLayer {
  PackedLayer(Device& device, const PackedForm& form, const ExpertCase& c, DType dtype,
              int lowest = 118, int num_exponents = 5)
      : x(Tensor::Random(dtype, {c.num_tokens, c.hidden}, 23)),
        fc(device, form, int64_t{c.NumExperts()} * 2 * c.inner, c.hidden, dtype, 24, lowest,
           num_exponents),
        proj(device, form, int64_t{c.NumExperts()} * c.hidden, c.inner, dtype, 25, lowest,
             num_exponents),
        fc_bias(Tensor::Random(DType::kF32, {c.NumExperts() * 2 * c.inner}, 26)),
        proj_bias(Tensor::Random(DType::kF32, {c.NumExperts() * c.hidden}, 27)),
        device_x(device, x),
        device_fc_bias(device, fc_bias),
        device_proj_bias(device, proj_bias) {}

  Tensor x;
  PackedOperand fc, proj;
  Tensor fc_bias, proj_bias;
  DeviceTensor device_x, device_fc_bias, device_proj_bias;
};

class PackedExpertsTest : public ExpertsTest {
 protected:
  struct Outputs {
    DeviceTensor inner, parts, y;
  };
  // Both halves, of the codes or of the weights that they stand for. `inner`: what the second half
  // reads; null: what the first one wrote.
  Outputs Run(const ExpertCase& c, const PackedLayer& layer, const DeviceLists& lists, DType dtype,
              bool is_packed, const DeviceTensor* inner = nullptr) {
    return Run(c, layer, lists.view(), dtype, is_packed, inner);
  }
  // With as many of the layer's first experts as the case has.
  Outputs Run(const ExpertCase& c, const PackedLayer& layer, const ExpertRoutes& routes,
              DType dtype, bool is_packed, const DeviceTensor* inner = nullptr) {
    const auto first_rows = [&](TensorView view, int64_t rows_of_expert) {
      const int64_t num_rows = c.NumExperts() * rows_of_expert;
      view.shape = view.shape.rank() == 1 ? Shape{num_rows} : Shape{num_rows, view.shape[1]};
      return view;
    };
    Outputs out = {.inner = Output(dtype, {c.NumPlaces(), c.inner}),
                   .parts = Output(DType::kF32, {c.NumPlaces(), c.hidden}),
                   .y = Output(DType::kF32, {c.num_tokens, c.hidden})};
    ExpertGatedLinearParams gated =
        Gated(c, layer.device_x.view(), routes,
              first_rows(layer.fc.device_wide.view(), int64_t{2} * c.inner),
              first_rows(layer.device_fc_bias.view(), int64_t{2} * c.inner), out.inner.view());
    const int64_t fc_rows = gated.weight.out_features;
    if (is_packed) gated.weight = layer.fc.ordered;
    gated.weight.out_features = fc_rows;
    EXPECT_EQ(cuda::ExpertGatedLinear(gated, stream()), Status::Ok());
    const DeviceTensor& read = inner == nullptr ? out.inner : *inner;
    ExpertLinearParams down =
        Down(c, read.view(), routes, first_rows(layer.proj.device_wide.view(), c.hidden),
             first_rows(layer.device_proj_bias.view(), c.hidden), out.y.view());
    down.workspace = out.parts.view();
    const int64_t proj_rows = down.weight.out_features;
    if (is_packed) down.weight = layer.proj.ordered;
    down.weight.out_features = proj_rows;
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

// Widths of whole groups of FP8 and slabs of int4, in every tile.
constexpr ExpertCase kWholeSlabs[] = {
    {"one_token", 1, 8, 2, 128, 128},
    {"no_token", 0, 4, 2, 128, 128},
    {"limited", 9, 6, 2, 384, 128, 0, true, 0.4F},
    {"many_experts", 13, 96, 8, 128, 256},
    {"all_on_one", 70, 5, 1, 384, 128, 0, true, 0, 50},
    {"shared", 33, 5, 2, 128, 128, 2, true},
    {"skewed", 300, 4, 2, 128, 256, 0, true, 0, 8, true, ActivationKind::kGeluTanh},
    {"a_thousand", 1000, 16, 2, 256, 384, 0, true},
    {"large_tiles", 1000, 3, 1, 128, 128, 1, false, 0, 1},
    {"long_rows_of_one", 1, 4, 2, 1152, 640, 0, true, 7},
    {"long_rows_of_some", 37, 4, 2, 896, 384, 0, true, 7},
    {"long_rows_of_all", 600, 4, 2, 640, 896, 0, true, 7},
};

std::vector<ExpertCase> CasesOf(const PackedForm& form) {
  if (form.codes == kF8 || form.codes == DType::kI4)
    return {std::begin(kWholeSlabs), std::end(kWholeSlabs)};
  std::vector<ExpertCase> cases(std::begin(kExpertCases), std::end(kExpertCases));
  cases.insert(cases.end(), std::begin(kLongRows), std::end(kLongRows));
  return cases;
}

class PackedFormsTest : public PackedExpertsTest, public testing::WithParamInterface<PackedForm> {};

constexpr PackedForm kForms[] = {
    kMxfp4,
    {kF8, 128},
    {DType::kI8, 0},
    {DType::kI8, 16},
    {DType::kI8, 32, true},
    {DType::kI8, 64},
    {DType::kI4, 0},
    {DType::kI4, 0, true},
    {DType::kI4, 16, true},
    {DType::kI4, 32},
    {DType::kI4, 64, true},
    {DType::kI4, 128},
};

INSTANTIATE_TEST_SUITE_P(Forms, PackedFormsTest, testing::ValuesIn(kForms),
                         [](const auto& info) { return NameOf(info.param); });

TEST_P(PackedFormsTest, BitsAreThoseOfTheWidenedWeights) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const ExpertCase& c : CasesOf(GetParam())) {
      SCOPED_TRACE(std::string(c.name) + " " + std::string(DTypeName(dtype)));
      const PackedLayer layer(device(), GetParam(), c, dtype);
      const DeviceLists lists(device(), c);
      Route(c, LogitsOf(c), lists);
      const Outputs want = Run(c, layer, lists, dtype, /*is_packed=*/false);
      const Outputs got = Run(c, layer, lists, dtype, /*is_packed=*/true, &want.inner);
      Synchronize();
      if (c.num_tokens == 0) continue;
      EXPECT_TRUE(SameBits(got.inner.ToHost().ToFloats(), want.inner.ToHost().ToFloats()));
      EXPECT_TRUE(SameBits(got.parts.ToHost().ToFloats(), want.parts.ToHost().ToFloats()));
      EXPECT_TRUE(SameBits(got.y.ToHost().ToFloats(), want.y.ToHost().ToFloats()));
      for (const DeviceTensor* out : {&got.inner, &got.parts, &got.y}) EXPECT_TRUE(Intact(*out));
      EXPECT_TRUE(Intact(layer.fc.device_codes));
      EXPECT_TRUE(Intact(layer.fc.device_exponents));
      EXPECT_TRUE(Intact(layer.fc.device_scales));
      EXPECT_TRUE(Intact(layer.fc.device_offsets));
    }
}

// As of 16 bits, experts_test.cc.
TEST_P(PackedFormsTest, AHolderOfTheFirstExpertsGivesTheirPartOfTheSum) {
  for (const ExpertCase& c : CasesOf(GetParam())) {
    if (c.num_experts == 1 || c.num_tokens == 0) continue;
    SCOPED_TRACE(c.name);
    const PackedLayer layer(device(), GetParam(), c, DType::kBF16);
    const DeviceLists all(device(), c);
    Route(c, LogitsOf(c), all);
    const HeldExperts held = HeldBy(0, c);
    const ExpertCase own = CaseOf(held, c);
    const DeviceLists lists(device(), own);
    Route(c, LogitsOf(c), lists, held);
    ExpertRoutes routes = lists.view();
    routes.num_holders = kHolders;
    DeviceTensor weights;
    const Outputs want = Run(c, layer, WithoutOthers(held, c, all, weights), DType::kBF16, true);
    const Outputs got = Run(own, layer, routes, DType::kBF16, true);
    EXPECT_TRUE(SameBits(got.y.ToHost().ToFloats(), want.y.ToHost().ToFloats()));
    for (const DeviceTensor* out : {&got.inner, &got.parts, &got.y}) EXPECT_TRUE(Intact(*out));
  }
}

// Below the normal numbers of either dtype, above what one step of widening takes, and up to the
// largest numbers of the dtype.
TEST_F(PackedExpertsTest, EveryExponentIsWidenedAsFloat32Is) {
  const ExpertCase c = {"", 11, 3, 2, 192, 128};
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (int lowest = 0; lowest < (dtype == DType::kBF16 ? 248 : 136); lowest += 4) {
      SCOPED_TRACE(std::to_string(lowest) + " " + std::string(DTypeName(dtype)));
      const PackedLayer layer(device(), kMxfp4, c, dtype, lowest, 4);
      const DeviceLists lists(device(), c);
      Route(c, LogitsOf(c), lists);
      const DeviceTensor inner = ToDevice(Tensor::Random(dtype, {c.NumPlaces(), c.inner}, 28));
      const Outputs want = Run(c, layer, lists, dtype, /*is_packed=*/false, &inner);
      const Outputs got = Run(c, layer, lists, dtype, /*is_packed=*/true, &inner);
      EXPECT_TRUE(SameBits(got.parts.ToHost().ToFloats(), want.parts.ToHost().ToFloats()));
    }
}

TEST_P(PackedFormsTest, BothHalvesAgreeWithTheReference) {
  const DType dtype = DType::kBF16;
  for (const ExpertCase& c : CasesOf(GetParam())) {
    if (c.num_tokens == 0) continue;
    SCOPED_TRACE(c.name);
    const PackedLayer layer(device(), GetParam(), c, dtype);
    const DeviceLists lists(device(), c);
    Route(c, LogitsOf(c), lists);
    const Outputs got = Run(c, layer, lists, dtype, /*is_packed=*/true);
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

TEST_F(PackedExpertsTest, WeightsThatAreNotInOrderAreNamed) {
  const ExpertCase c = {"", 2, 3, 2, 64, 64};
  const PackedLayer layer(device(), kMxfp4, c, DType::kBF16);
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
              HasSubstr("float4 with exponents of groups of 32"));
}

TEST_F(PackedExpertsTest, GroupsThatNoKernelHasAreNamed) {
  const ExpertCase c = {"", 2, 3, 2, 384, 128};
  const PackedLayer layer(device(), {DType::kI4, 128}, c, DType::kBF16);
  const DeviceLists lists(device(), c);
  const DeviceTensor inner = Output(DType::kBF16, {4, 128});
  ExpertGatedLinearParams gated =
      Gated(c, layer.device_x.view(), lists.view(), layer.fc.device_wide.view(),
            layer.device_fc_bias.view(), inner.view());
  gated.weight = layer.fc.ordered;
  for (const int64_t group : {8, 48, 256}) {  // 256 does not divide a row
    gated.weight.group_size = group;
    EXPECT_THAT(cuda::ExpertGatedLinear(gated, stream()).message(),
                HasSubstr("in groups of " + std::to_string(group)));
  }
  gated.weight.group_size = 128;
  EXPECT_EQ(cuda::ExpertGatedLinear(gated, stream()), Status::Ok());
}

}  // namespace
}  // namespace inflight::ops
