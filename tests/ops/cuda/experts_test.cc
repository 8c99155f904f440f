// SPDX-License-Identifier: Apache-2.0
// Experts: routes, both halves of their feed-forward and their sum, against ops/reference; the same
// bits for a token whatever else the batch holds.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "expert_cases.h"
#include "linear_operands.h"

namespace inflight::ops {
namespace {

using testing::HasSubstr;

class CudaExpertsTest : public ExpertsTest {
 protected:
  void ExpectSameBitsAloneAndInBatches(DType dtype);
};

// Random weights of a layer, on the host and on the GPU.
struct ExpertLayer {
  ExpertLayer(Device& device, const ExpertCase& c, DType dtype)
      : x(Tensor::Random(dtype, {c.num_tokens, c.hidden}, 3)),
        fc(Tensor::Random(dtype, {c.NumExperts() * 2 * c.inner, c.hidden}, 4)),
        fc_bias(Tensor::Random(DType::kF32, {c.NumExperts() * 2 * c.inner}, 5)),
        proj(Tensor::Random(dtype, {c.NumExperts() * c.hidden, c.inner}, 6)),
        proj_bias(Tensor::Random(DType::kF32, {c.NumExperts() * c.hidden}, 7)),
        device_fc(device, fc),
        device_fc_bias(device, fc_bias),
        device_proj(device, proj),
        device_proj_bias(device, proj_bias) {}

  Tensor x, fc, fc_bias, proj, proj_bias;
  DeviceTensor device_fc, device_fc_bias, device_proj, device_proj_bias;
};

TEST_F(CudaExpertsTest, RoutesAreTheReferences) {
  for (const ExpertCase& c : kExpertCases) {
    SCOPED_TRACE(c.name);
    const Tensor logits = LogitsOf(c);
    const Lists want(c);
    RouteParams params = Params(c, logits.view());
    params.routes = want.view();
    params.chosen = want.chosen.view();
    params.chosen_weights = want.chosen_weights.view();
    ASSERT_EQ(ReferenceTable().route(params, host()), Status::Ok());
    const DeviceLists got(device(), c);
    Route(c, logits, got);
    if (c.num_tokens == 0) continue;
    EXPECT_EQ(Ints(got.begins.ToHost()), Ints(want.begins));
    const std::vector<int> tokens = Ints(want.tokens);
    EXPECT_EQ(Ints(got.tokens.ToHost()), tokens);
    std::vector<double> bound;
    for (const float weight : want.weights.ToFloats()) bound.push_back(1e-5 * weight + 1e-30);
    EXPECT_TRUE(Within(got.weights.ToHost().ToFloats(), want.weights.ToFloats(), bound));
    // Places of a token, ascending.
    std::vector<int> places;
    for (int t = 0; t < c.num_tokens; ++t)
      for (size_t p = 0; p < tokens.size(); ++p)
        if (tokens[p] == t) places.push_back(static_cast<int>(p));
    EXPECT_EQ(Ints(got.places.ToHost()), places);
    EXPECT_TRUE(got.IsIntact());
  }
}

TEST_F(CudaExpertsTest, RoutesEqualsToTheFirstAndWhatIsNotANumberSomewhere) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const int repeats : {1, 200}) {
    const ExpertCase c = {"", 5 * repeats, 4, 2, 64, 64};
    std::vector<float> values;
    for (int i = 0; i < repeats; ++i)
      for (const float value : {0.F, 0.F, 0.F, 0.F, -0.F, 0.F, -0.F, 0.F,  nan, nan,
                                nan, nan, 1.F, nan, 2.F,  nan, -inf, -inf, 3.F, -inf})
        values.push_back(value);
    const DeviceLists lists(device(), c);
    Route(c, Tensor::Of(DType::kF32, {c.num_tokens, 4}, values), lists);
    // Experts of the five tokens: 0 1, 0 1, 0 1, 0 2, 0 2.
    EXPECT_EQ(Ints(lists.begins.ToHost()),
              (std::vector{0, 5 * repeats, 8 * repeats, 10 * repeats, 10 * repeats}));
    const std::vector<int> tokens = Ints(lists.tokens.ToHost());
    for (int i = 0; i < 3 * repeats; ++i)
      EXPECT_EQ(tokens[static_cast<size_t>(5 * repeats + i)], i / 3 * 5 + i % 3);
  }
}

TEST_F(CudaExpertsTest, BothHalvesAgreeWithTheReference) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
    for (const ExpertCase& c : kExpertCases) {
      SCOPED_TRACE(std::string(c.name) + " " + std::string(DTypeName(dtype)));
      const ExpertLayer layer(device(), c, dtype);
      const DeviceLists lists(device(), c);
      Route(c, LogitsOf(c), lists);
      const DeviceTensor x = ToDevice(layer.x);
      const DeviceTensor inner = Output(dtype, {c.NumPlaces(), c.inner});
      const OpTable table = TableOf(dtype);
      ASSERT_EQ(table.expert_gated_linear(Gated(c, x.view(), lists.view(), layer.device_fc.view(),
                                                layer.device_fc_bias.view(), inner.view()),
                                          stream()),
                Status::Ok());
      const DeviceTensor parts = Output(DType::kF32, {c.NumPlaces(), c.hidden});
      const DeviceTensor y = Output(dtype, {c.num_tokens, c.hidden});
      const DeviceTensor wide_y = Output(DType::kF32, {c.num_tokens, c.hidden});
      for (const DeviceTensor* out : {&y, &wide_y}) {
        ExpertLinearParams params = Down(c, inner.view(), lists.view(), layer.device_proj.view(),
                                         layer.device_proj_bias.view(), out->view());
        params.workspace = parts.view();
        ASSERT_EQ(table.expert_linear(params, stream()), Status::Ok());
      }
      if (c.num_tokens == 0) continue;
      const Tensor begins = lists.begins.ToHost();
      const Tensor tokens = lists.tokens.ToHost();
      const Tensor weights = lists.weights.ToHost();
      const ExpertRoutes routes = {begins.view(), tokens.view(), weights.view(), {}};
      const Tensor host_x = InFloat32(layer.x), fc = InFloat32(layer.fc),
                   proj = InFloat32(layer.proj);
      const Tensor want_inner(DType::kF32, {c.NumPlaces(), c.inner});
      ASSERT_EQ(ReferenceTable().expert_gated_linear(Gated(c, host_x.view(), routes, fc.view(),
                                                           layer.fc_bias.view(), want_inner.view()),
                                                     host()),
                Status::Ok());
      const Tensor got_inner = inner.ToHost();
      std::vector<double> bound;
      const double most = 4 * std::sqrt(c.hidden);  // of either branch
      for (int64_t i = 0; i < c.NumPlaces() * c.inner; ++i) {
        const double want = want_inner.Get(i);
        bound.push_back(RoundedBound(
            3 * RandomSumBound(c.hidden, 1) * most + 0x1p-18 * std::abs(want), want, dtype));
      }
      EXPECT_TRUE(Within(got_inner.ToFloats(), want_inner.ToFloats(), bound));
      EXPECT_TRUE(Intact(inner));

      const Tensor read = InFloat32(got_inner);
      const Tensor want(DType::kF32, {c.num_tokens, c.hidden});
      ASSERT_EQ(ReferenceTable().expert_linear(
                    Down(c, read.view(), routes, proj.view(), layer.proj_bias.view(), want.view()),
                    host()),
                Status::Ok());
      const double sum = RandomSumBound(c.inner + c.NumExperts(), LargestOf(read)) * 2;
      for (const DeviceTensor* out : {&y, &wide_y}) {
        bound.clear();
        for (const float value : want.ToFloats())
          bound.push_back(RoundedBound(sum, value, out->view().dtype));
        EXPECT_TRUE(Within(out->ToHost().ToFloats(), want.ToFloats(), bound));
        EXPECT_TRUE(Intact(*out));
      }
      EXPECT_TRUE(Intact(parts));
    }
}

// What codes with a scale for each row stand for.
Tensor InFloat32(const Operand& operand) {
  const Shape shape = operand.values.view().shape;
  Tensor out(DType::kF32, shape);
  for (int64_t i = 0; i < shape.num_elements(); ++i)
    out.Set(i, static_cast<float>(double{operand.values.Get(i)} * operand.Scale(i / shape[1])));
  return out;
}

TEST_F(CudaExpertsTest, Fp8AgreesWithTheReferenceOfWhatCodesStandFor) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const ExpertCase& c : kExpertCases) {
      if (c.num_tokens == 0) continue;
      SCOPED_TRACE(std::string(c.name) + " " + std::string(DTypeName(dtype)));
      const DType f8 = DType::kF8E4M3;
      const Operand x(device(), f8, c.num_tokens, c.hidden, 31);
      const Operand fc(device(), f8, c.NumExperts() * 2 * c.inner, c.hidden, 32);
      const Operand proj(device(), f8, c.NumExperts() * c.hidden, c.inner, 33);
      const Tensor fc_bias = Tensor::Random(DType::kF32, {c.NumExperts() * 2 * c.inner}, 34);
      const Tensor proj_bias = Tensor::Random(DType::kF32, {c.NumExperts() * c.hidden}, 35);
      const DeviceTensor device_fc_bias = ToDevice(fc_bias), device_proj_bias = ToDevice(proj_bias);
      const DeviceLists lists(device(), c);
      Route(c, LogitsOf(c), lists);
      const DeviceTensor inner = Output(f8, {c.NumPlaces(), c.inner});
      const DeviceTensor inner_scales = Output(DType::kF32, {c.NumPlaces()});
      const DeviceTensor wide = Output(dtype, {c.NumPlaces(), c.inner});
      ExpertGatedLinearParams gated =
          Gated(c, x.activation().values, lists.view(), fc.device_values.view(),
                device_fc_bias.view(), inner.view());
      gated.x = x.activation();
      gated.weight = fc.weight();
      gated.y_scales = inner_scales.view();
      gated.workspace = wide.view();
      ASSERT_EQ(cuda::ExpertGatedLinear(gated, stream()), Status::Ok());
      const DeviceTensor parts = Output(DType::kF32, {c.NumPlaces(), c.hidden});
      const DeviceTensor y = Output(dtype, {c.num_tokens, c.hidden});
      ExpertLinearParams down = Down(c, inner.view(), lists.view(), proj.device_values.view(),
                                     device_proj_bias.view(), y.view());
      down.x.scales = inner_scales.view();
      down.weight = proj.weight();
      down.workspace = parts.view();
      ASSERT_EQ(cuda::ExpertLinear(down, stream()), Status::Ok());

      const Tensor begins = lists.begins.ToHost(), tokens = lists.tokens.ToHost();
      const Tensor weights = lists.weights.ToHost();
      const ExpertRoutes routes = {begins.view(), tokens.view(), weights.view(), {}};
      const Tensor host_x = InFloat32(x), host_fc = InFloat32(fc), host_proj = InFloat32(proj);
      const Tensor want_inner(DType::kF32, {c.NumPlaces(), c.inner});
      ASSERT_EQ(ReferenceTable().expert_gated_linear(Gated(c, host_x.view(), routes, host_fc.view(),
                                                           fc_bias.view(), want_inner.view()),
                                                     host()),
                Status::Ok());
      const double largest = LargestOf(host_x) * LargestOf(host_fc);
      std::vector<double> bound;
      const double most = 4 * std::sqrt(c.hidden) * largest + 1;  // of either branch, with a bias
      const double error = RandomSumBound(c.hidden, largest) + 2 * kUnit * most;
      for (const float want : want_inner.ToFloats())
        bound.push_back(RoundedBound(3 * error * most + 0x1p-18 * std::abs(want), want, dtype));
      EXPECT_TRUE(Within(wide.ToHost().ToFloats(), want_inner.ToFloats(), bound));

      const Tensor codes = inner.ToHost(), scales = inner_scales.ToHost();
      Tensor read(DType::kF32, {c.NumPlaces(), c.inner});
      for (int64_t i = 0; i < c.NumPlaces() * c.inner; ++i)
        read.Set(i, codes.Get(i) * scales.Get(i / c.inner));
      bound.clear();
      const std::vector<float> rounded = wide.ToHost().ToFloats();
      for (size_t i = 0; i < rounded.size(); ++i)  // half a step of 3 bits, or of the least codes
        bound.push_back(std::abs(rounded[i]) * 0x1.1p-4 +
                        0x1.1p-10 * scales.Get(static_cast<int64_t>(i) / c.inner));
      EXPECT_TRUE(Within(read.ToFloats(), rounded, bound));
      const Tensor want(DType::kF32, {c.num_tokens, c.hidden});
      ASSERT_EQ(ReferenceTable().expert_linear(
                    Down(c, read.view(), routes, host_proj.view(), proj_bias.view(), want.view()),
                    host()),
                Status::Ok());
      const double sum =
          2 * RandomSumBound(c.inner + c.NumExperts(), LargestOf(read) * LargestOf(host_proj)) +
          16 * kUnit;
      bound.clear();
      for (const float value : want.ToFloats()) bound.push_back(RoundedBound(sum, value, dtype));
      EXPECT_TRUE(Within(y.ToHost().ToFloats(), want.ToFloats(), bound));
      for (const DeviceTensor* out : {&y, &inner, &inner_scales, &wide, &parts})
        EXPECT_TRUE(Intact(*out));
    }
}

TEST_F(CudaExpertsTest, AHolderOfSomeExpertsHasTheirPlaces) {
  for (const ExpertCase& c : kExpertCases) {
    if (c.num_experts == 1 || c.num_tokens == 0) continue;
    const Tensor logits = LogitsOf(c);
    for (int holder = 0; holder < kHolders; ++holder) {
      SCOPED_TRACE(std::string(c.name) + " " + std::to_string(holder));
      const HeldExperts held = HeldBy(holder, c);
      const ExpertCase own = CaseOf(held, c);
      const Lists want(own);
      RouteParams params = Params(c, logits.view());
      params.held = held;
      params.routes = want.view();
      params.routes.num_holders = kHolders;
      params.chosen = want.chosen.view();
      params.chosen_weights = want.chosen_weights.view();
      ASSERT_EQ(ReferenceTable().route(params, host()), Status::Ok());
      const DeviceLists got(device(), own);
      Route(c, logits, got, held);
      EXPECT_EQ(Ints(got.begins.ToHost()), Ints(want.begins));
      const auto num_written = static_cast<size_t>(Ints(want.begins).back());
      std::vector<int> tokens = Ints(want.tokens), got_tokens = Ints(got.tokens.ToHost());
      std::vector<float> weights = want.weights.ToFloats();
      std::vector<float> got_weights = got.weights.ToHost().ToFloats();
      tokens.resize(num_written), got_tokens.resize(num_written);
      weights.resize(num_written), got_weights.resize(num_written);
      EXPECT_EQ(got_tokens, tokens);
      std::vector<double> bound;
      for (const float weight : weights) bound.push_back(1e-5 * weight + 1e-30);
      EXPECT_TRUE(Within(got_weights, weights, bound));
      // Of a token its places, ascending, among those of experts that others hold.
      const std::vector<int> places = Ints(got.places.ToHost());
      const auto per_token = static_cast<size_t>(own.experts_per_token + own.num_shared);
      for (int t = 0; t < c.num_tokens; ++t) {
        std::vector<int> of_token;
        for (size_t j = 0; j < per_token; ++j)
          if (const int place = places[static_cast<size_t>(t) * per_token + j]; place != -1)
            of_token.push_back(place);
        std::vector<int> expected;
        for (size_t p = 0; p < num_written; ++p)
          if (tokens[p] == t) expected.push_back(static_cast<int>(p));
        EXPECT_EQ(of_token, expected) << t;
      }
      EXPECT_TRUE(got.IsIntact());
    }
  }
}

// A holder's sum has the bits of all experts' where the places of the others weigh nothing.
TEST_F(CudaExpertsTest, AHolderOfSomeExpertsGivesTheirPartOfTheSum) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const ExpertCase& c : kExpertCases) {
      if (c.num_experts == 1 || c.num_tokens == 0) continue;
      const ExpertLayer layer(device(), c, dtype);
      const DeviceTensor x = ToDevice(layer.x);
      const DeviceLists all(device(), c);
      Route(c, LogitsOf(c), all);
      const auto run = [&](const ExpertCase& of, const ExpertRoutes& routes, int first_expert) {
        const DeviceTensor inner = Output(dtype, {of.NumPlaces(), c.inner});
        const DeviceTensor parts = Output(DType::kF32, {of.NumPlaces(), c.hidden});
        const DeviceTensor y = Output(DType::kF32, {c.num_tokens, c.hidden});
        const auto rows = [&](const DeviceTensor& of_all, int64_t rows_of_expert) {
          TensorView view = of_all.view();
          const int64_t width = view.shape.rank() == 2 ? view.shape[1] : 1;
          view.data = static_cast<std::byte*>(view.data) +
                      BytesOf(view.dtype, first_expert * rows_of_expert * width);
          const int64_t num_rows = of.NumExperts() * rows_of_expert;
          view.shape = view.shape.rank() == 2 ? Shape{num_rows, width} : Shape{num_rows};
          return view;
        };
        EXPECT_EQ(
            cuda::ExpertGatedLinear(Gated(of, x.view(), routes, rows(layer.device_fc, 2 * c.inner),
                                          rows(layer.device_fc_bias, 2 * c.inner), inner.view()),
                                    stream()),
            Status::Ok());
        ExpertLinearParams down = Down(of, inner.view(), routes, rows(layer.device_proj, c.hidden),
                                       rows(layer.device_proj_bias, c.hidden), y.view());
        down.workspace = parts.view();
        EXPECT_EQ(cuda::ExpertLinear(down, stream()), Status::Ok());
        for (const DeviceTensor* out : {&y, &inner, &parts}) EXPECT_TRUE(Intact(*out));
        return y.ToHost().ToFloats();
      };
      for (int holder = 0; holder < kHolders; ++holder) {
        SCOPED_TRACE(std::string(c.name) + " " + std::to_string(holder));
        const HeldExperts held = HeldBy(holder, c);
        const ExpertCase own = CaseOf(held, c);
        const DeviceLists lists(device(), own);
        Route(c, LogitsOf(c), lists, held);
        ExpertRoutes routes = lists.view();
        routes.num_holders = kHolders;
        DeviceTensor weights;
        const std::vector<float> want = run(c, WithoutOthers(held, c, all, weights), 0);
        EXPECT_TRUE(SameBits(run(own, routes, held.first), want));
      }
    }
}

void CudaExpertsTest::ExpectSameBitsAloneAndInBatches(DType dtype) {
  const OpTable table = TableOf(dtype);
  const ExpertCase all = {"", 700, 5, 2, 128, 64, 1, true, 0, 1};
  const ExpertLayer layer(device(), all, dtype);
  const Tensor logits = LogitsOf(all);
  const auto run = [&](int first, int num_tokens) {
    ExpertCase c = all;
    c.num_tokens = num_tokens;
    Tensor x(dtype, {num_tokens, c.hidden});
    for (int64_t i = 0; i < x.view().num_elements(); ++i)
      x.Set(i, layer.x.Get(int64_t{first} * c.hidden + i));
    Tensor of_x(DType::kF32, {num_tokens, 6});
    for (int64_t i = 0; i < of_x.view().num_elements(); ++i)
      of_x.Set(i, logits.Get(int64_t{first} * 6 + i));
    const DeviceLists lists(device(), c);
    Route(c, of_x, lists);
    const DeviceTensor device_x = ToDevice(x);
    const DeviceTensor inner = Output(dtype, {c.NumPlaces(), c.inner});
    const DeviceTensor parts = Output(DType::kF32, {c.NumPlaces(), c.hidden});
    const DeviceTensor y = Output(DType::kF32, {num_tokens, c.hidden});
    EXPECT_EQ(
        table.expert_gated_linear(Gated(c, device_x.view(), lists.view(), layer.device_fc.view(),
                                        layer.device_fc_bias.view(), inner.view()),
                                  stream()),
        Status::Ok());
    ExpertLinearParams params = Down(c, inner.view(), lists.view(), layer.device_proj.view(),
                                     layer.device_proj_bias.view(), y.view());
    params.workspace = parts.view();
    EXPECT_EQ(table.expert_linear(params, stream()), Status::Ok());
    return y.ToHost().ToFloats();
  };
  const std::vector<float> whole = run(0, 700);
  for (const auto& [first, count] : {std::pair{0, 1}, {699, 1}, {77, 9}, {200, 30}, {300, 130}}) {
    const auto row = whole.begin() + std::ptrdiff_t{first} * all.hidden;
    EXPECT_TRUE(SameBits(run(first, count), {row, row + std::ptrdiff_t{count} * all.hidden}))
        << count << " tokens from " << first;
  }
}

TEST_F(CudaExpertsTest, ATokenHasTheSameBitsAloneAndInBatches) {
  ExpectSameBitsAloneAndInBatches(DType::kBF16);
  ExpectSameBitsAloneAndInBatches(DType::kF32);
}

TEST_F(CudaExpertsTest, ALimitHidesNoNaN) {
  const ExpertCase c = {"", 3, 2, 1, 64, 64, 0, false, 0.4F};
  ExpertLayer layer(device(), c, DType::kBF16);
  layer.x.Set(c.hidden, std::numeric_limits<float>::quiet_NaN());  // of token 1
  const DeviceLists lists(device(), c);
  Route(c, LogitsOf(c), lists);
  const DeviceTensor x = ToDevice(layer.x);
  const DeviceTensor inner = Output(DType::kBF16, {c.NumPlaces(), c.inner});
  ASSERT_EQ(cuda::ExpertGatedLinear(Gated(c, x.view(), lists.view(), layer.device_fc.view(),
                                          layer.device_fc_bias.view(), inner.view()),
                                    stream()),
            Status::Ok());
  const std::vector<int> tokens = Ints(lists.tokens.ToHost());
  const std::vector<float> got = inner.ToHost().ToFloats();
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(std::isnan(got[i]), tokens[i / static_cast<size_t>(c.inner)] == 1) << i;
}

TEST_F(CudaExpertsTest, WhatDoesNotFitIsNamed) {
  const ExpertCase c = {"", 2, 3, 2, 64, 64};
  const ExpertLayer layer(device(), c, DType::kBF16);
  const DeviceLists lists(device(), c);
  const DeviceTensor logits = ToDevice(LogitsOf(c));
  RouteParams route = Params(c, logits.view());
  route.experts_per_token = 4;
  EXPECT_THAT(cuda::Route(route, stream()).message(),
              HasSubstr("experts_per_token: got 4, needed [1, 3]"));
  const DeviceTensor x = ToDevice(layer.x);
  const DeviceTensor inner = Output(DType::kBF16, {4, 64});
  ExpertGatedLinearParams gated = Gated(c, x.view(), lists.view(), layer.device_fc.view(),
                                        layer.device_fc_bias.view(), inner.view());
  gated.y.shape = {int64_t{1} << 23, 64};
  EXPECT_THAT(cuda::ExpertGatedLinear(gated, stream()).message(),
              HasSubstr("routes.tokens: got 8388608 places, needed at most 8257408"));
  gated.y = inner.view();
  gated.weight.out_features = 128;
  EXPECT_THAT(cuda::ExpertGatedLinear(gated, stream()).message(),
              HasSubstr("weight: got 128 rows, needed 128 of each of 3 experts"));
  gated.weight.dtype = DType::kI8;
  EXPECT_EQ(cuda::ExpertGatedLinear(gated, stream()).code(), StatusCode::kInvalidArgument);
  const DeviceTensor y = Output(DType::kBF16, {2, 64});
  EXPECT_THAT(cuda::ExpertLinear(Down(c, inner.view(), lists.view(), layer.device_proj.view(),
                                      layer.device_proj_bias.view(), y.view()),
                                 stream())
                  .message(),
              HasSubstr("workspace: got no tensor, needed float32 [4, 64]"));
}

}  // namespace
}  // namespace inflight::ops
