// SPDX-License-Identifier: Apache-2.0
// Experts: routing by hand, every table against the reference, and the same bits for a token
// whatever else the batch holds.
#include "ops/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cases.h"
#include "compare.h"
#include "integer_weight.h"

namespace inflight::ops {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ExpertsTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = Device::Cpu(3);
  Stream stream_{*device_};
};
class ExpertKernelsTest : public ExpertsTest, public testing::WithParamInterface<DType> {};

// The lists of a step, and what routing computes in.
struct Lists {
  Lists(int num_experts, int64_t num_places)
      : begins(DType::kI32, {num_experts + 1}),
        tokens(DType::kI32, {num_places}),
        weights(DType::kF32, {num_places}),
        chosen(DType::kI32, {num_places}),
        chosen_weights(DType::kF32, {num_places}) {}

  ExpertRoutes view() const { return {begins.view(), tokens.view(), weights.view()}; }
  RouteParams Params(const Tensor& logits, int experts_per_token, bool renormalizes) const {
    return {.logits = logits.view(),
            .experts_per_token = experts_per_token,
            .renormalizes = renormalizes,
            .routes = view(),
            .chosen = chosen.view(),
            .chosen_weights = chosen_weights.view()};
  }
  std::vector<int> Ints(const Tensor& tensor) const {
    const auto* values = tensor.view().as<const int32_t>();
    return {values, values + tensor.view().num_elements()};
  }

  Tensor begins, tokens, weights, chosen, chosen_weights;
};

std::vector<OpTable> AllTables() { return CpuOpTables({.weight_dtype = DType::kF32}); }

TEST_F(ExpertsTest, RoutesByHand) {
  // Token 0 chooses 3 and 0, token 1 the first two of equals, token 2 3 and 1.
  const float l = std::log(2.0F);
  const Tensor logits =
      Tensor::Of(DType::kF32, {3, 4}, {l, 0, 0, 2 * l, 0, 0, 0, 0, -9, l, -9, l + 0.5F});
  for (const OpTable& table : AllTables()) {
    const Lists lists(4, 6);
    ASSERT_EQ(table.route(lists.Params(logits, 2, /*renormalizes=*/true), stream_), Status::Ok());
    EXPECT_THAT(lists.Ints(lists.begins), ElementsAre(0, 2, 4, 4, 6)) << table.name;
    EXPECT_THAT(lists.Ints(lists.tokens), ElementsAre(0, 1, 1, 2, 0, 2));
    const float e = std::exp(0.5F);
    const auto weights = lists.weights.ToFloats();
    const float want[] = {1.0F / 3, 0.5F, 0.5F, 1 / (1 + e), 2.0F / 3, e / (1 + e)};
    for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(weights[i], want[i], 1e-6F);

    ASSERT_EQ(table.route(lists.Params(logits, 2, /*renormalizes=*/false), stream_), Status::Ok());
    // Of token 0 the logits are the logarithms of 2, 1, 1, 4.
    EXPECT_NEAR(lists.weights.Get(0), 0.25F, 1e-6F);
    EXPECT_NEAR(lists.weights.Get(4), 0.5F, 1e-6F);
    EXPECT_NEAR(lists.weights.Get(1), 0.25F, 1e-6F);
  }
}

TEST_F(ExpertsTest, SharedExpertsAreEveryTokens) {
  // Two tokens, three experts and two shared ones, whose logits are ln 3 and 0.
  const Tensor logits = Tensor::Of(DType::kF32, {2, 4}, {0, 5, 0, std::log(3.0F), 7, 0, 0, 0});
  for (const OpTable& table : AllTables()) {
    const Lists lists(5, 6);
    RouteParams params = lists.Params(logits, 1, /*renormalizes=*/true);
    params.num_shared = 2;
    ASSERT_EQ(table.route(params, stream_), Status::Ok());
    EXPECT_THAT(lists.Ints(lists.begins), ElementsAre(0, 1, 2, 2, 4, 6)) << table.name;
    EXPECT_THAT(lists.Ints(lists.tokens), ElementsAre(1, 0, 0, 1, 0, 1));
    const float want[] = {1, 1, 0.75F, 0.5F, 0.75F, 0.5F};
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(lists.weights.ToFloats()[i], want[i], 1e-6F);
    params.num_shared = -1;
    EXPECT_THAT(table.route(params, stream_).message(), HasSubstr("num_shared: got -1"));
  }
}

TEST_F(ExpertsTest, AHolderOfSomeExpertsHasTheirPlacesByHand) {
  // Token 0 chooses 3 and 0, token 1 the first two of equals, token 2 3 and 1; of two shared
  // experts this rank holds one.
  const float l = std::log(2.0F);
  const Tensor logits = Tensor::Of(DType::kF32, {3, 5},
                                   {l, 0, 0, 2 * l, 0,  //
                                    0, 0, 0, 0, l,      //
                                    -9, l, -9, l + 0.5F, 0});
  for (const OpTable& table : AllTables()) {
    const Lists lists(4, 9);
    RouteParams params = lists.Params(logits, 2, /*renormalizes=*/true);
    params.num_shared = 2;
    params.held = {.first = 1, .num_routed = 3, .num_shared = 1};
    params.routes.num_holders = 2;
    ASSERT_EQ(table.route(params, stream_), Status::Ok());
    EXPECT_THAT(lists.Ints(lists.begins), ElementsAre(0, 2, 2, 4, 7)) << table.name;
    std::vector<int> tokens = lists.Ints(lists.tokens);
    tokens.resize(7);
    EXPECT_THAT(tokens, ElementsAre(1, 2, 0, 2, 0, 1, 2));
    const float e = std::exp(0.5F);
    const float want[] = {0.5F, 1 / (1 + e), 2.0F / 3, e / (1 + e), 0.5F, 2.0F / 3, 0.5F};
    for (size_t i = 0; i < 7; ++i) EXPECT_NEAR(lists.weights.ToFloats()[i], want[i], 1e-6F);

    params.held->num_routed = 4;
    EXPECT_THAT(table.route(params, stream_).message(),
                HasSubstr("held: got experts [1, 5), needed some of [0, 4)"));
    params.held = {.first = 1, .num_routed = 1, .num_shared = 3};
    EXPECT_THAT(table.route(params, stream_).message(),
                HasSubstr("held: got 3 shared experts, needed [0, 2]"));
    params.held = {.first = 1, .num_routed = 2, .num_shared = 2};
    params.routes.num_holders = 1;
    EXPECT_THAT(table.route(params, stream_).message(),
                HasSubstr("routes.num_holders: got 1, needed 2 or more beside held"));
  }
}

TEST_F(ExpertsTest, RoutesWhatIsNotANumberToExpertsAllTheSame) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor logits = Tensor::Of(DType::kF32, {2, 3}, {nan, nan, nan, 1, nan, 2});
  for (const OpTable& table : AllTables()) {
    const Lists lists(3, 4);
    ASSERT_EQ(table.route(lists.Params(logits, 2, true), stream_), Status::Ok());
    EXPECT_EQ(lists.Ints(lists.begins).back(), 4) << table.name;
  }
}

struct ExpertCase {
  const char* name;
  int num_tokens;
  int num_experts;
  int experts_per_token;
  int hidden;
  int inner;
  bool bias = false;
  float limit = 0;
  float skew = 0;  // of the logits towards expert 0
};

constexpr ExpertCase kCases[] = {
    {"one_token", 1, 8, 2, 64, 64},
    {"no_token", 0, 4, 2, 64, 64},
    {"one_expert", 5, 1, 1, 128, 64, true},
    {"all_experts", 3, 3, 3, 64, 128, true},
    {"limited", 9, 6, 2, 64, 64, true, 0.4F},
    {"many_experts", 13, 96, 8, 64, 64},
    {"skewed", 300, 4, 2, 64, 128, true, 0, 8.0F},
};

// A layer, random, and a step of it.
struct ExpertLayer {
  ExpertLayer(const ExpertCase& c, DType dtype)
      : shape(c),
        input(InputDType(dtype)),
        x(Tensor::Random(input, {c.num_tokens, c.hidden}, 3)),
        fc(dtype, CpuWeightLayout(dtype),
           Tensor::Random(dtype, {c.num_experts * 2 * c.inner, c.hidden}, 4)),
        fc_bias(Tensor::Random(DType::kF32, {c.num_experts * 2 * c.inner}, 5)),
        proj(dtype, CpuWeightLayout(dtype),
             Tensor::Random(dtype, {c.num_experts * c.hidden, c.inner}, 6)),
        proj_bias(Tensor::Random(DType::kF32, {c.num_experts * c.hidden}, 7)),
        logits(Tensor::Random(DType::kF32, {c.num_tokens, c.num_experts}, 8)) {
    for (int t = 0; t < c.num_tokens; ++t)
      logits.Set(int64_t{t} * c.num_experts, logits.Get(int64_t{t} * c.num_experts) + c.skew);
  }

  ExpertGatedLinearParams Gated(const Tensor& of, const ExpertRoutes& routes, Tensor& y) const {
    return {.x = {.values = of.view()},
            .routes = routes,
            .weight = fc.weight(),
            .bias = shape.bias ? fc_bias.view() : TensorView{},
            .limit = shape.limit,
            .y = y.view()};
  }
  ExpertLinearParams Linear(const Tensor& inner, const ExpertRoutes& routes, Tensor& y) const {
    return {.x = {.values = inner.view()},
            .routes = routes,
            .weight = proj.weight(),
            .bias = shape.bias ? proj_bias.view() : TensorView{},
            .y = y.view()};
  }

  ExpertCase shape;
  DType input;
  Tensor x;
  PackedWeight fc;
  Tensor fc_bias;
  PackedWeight proj;
  Tensor proj_bias, logits;
};

// Elements of x and weights are below 1 in size.
double GatedBound(const ExpertCase& c, double y, DType dtype) {
  const double sum = SumBound(c.hidden, c.hidden + 1);
  const double most = c.hidden + 2;  // of either branch
  return RoundedBound(4 * sum * most + 64 * kUnit * most * most, y, dtype);
}

TEST_P(ExpertKernelsTest, EveryTableAgreesWithTheReference) {
  const DType dtype = GetParam();
  for (const ExpertCase& c : kCases) {
    const ExpertLayer layer(c, dtype);
    const int64_t num_places = int64_t{c.num_tokens} * c.experts_per_token;
    const Lists lists(c.num_experts, num_places);
    const OpTable reference = ReferenceTable();
    ASSERT_EQ(reference.route(lists.Params(layer.logits, c.experts_per_token, true), stream_),
              Status::Ok());
    Tensor inner(layer.input, {num_places, c.inner});
    Tensor want(DType::kF32, {c.num_tokens, c.hidden});
    ASSERT_EQ(reference.expert_gated_linear(layer.Gated(layer.x, lists.view(), inner), stream_),
              Status::Ok());
    ASSERT_EQ(reference.expert_linear(layer.Linear(inner, lists.view(), want), stream_),
              Status::Ok());
    for (const OpTable& table : VectorTables({.weight_dtype = dtype})) {
      const Lists own(c.num_experts, num_places);
      ASSERT_EQ(table.route(own.Params(layer.logits, c.experts_per_token, true), stream_),
                Status::Ok());
      EXPECT_EQ(own.Ints(own.begins), lists.Ints(lists.begins));
      EXPECT_EQ(own.Ints(own.tokens), lists.Ints(lists.tokens));
      EXPECT_EQ(own.weights.ToFloats(), lists.weights.ToFloats());
      Tensor got_inner(layer.input, {num_places, c.inner});
      ASSERT_EQ(table.expert_gated_linear(layer.Gated(layer.x, lists.view(), got_inner), stream_),
                Status::Ok());
      std::vector<double> bound;
      for (int64_t i = 0; i < num_places * c.inner; ++i)
        bound.push_back(GatedBound(c, inner.Get(i), layer.input));
      EXPECT_TRUE(Within(got_inner.ToFloats(), inner.ToFloats(), bound))
          << table.name << " " << c.name;
      Tensor got(DType::kF32, {c.num_tokens, c.hidden});
      ASSERT_EQ(table.expert_linear(layer.Linear(inner, lists.view(), got), stream_), Status::Ok());
      double largest = 1;
      for (int64_t i = 0; i < num_places * c.inner; ++i)
        largest = std::max(largest, std::abs(static_cast<double>(inner.Get(i))));
      bound.assign(static_cast<size_t>(c.num_tokens * c.hidden),
                   2 * SumBound(c.inner + c.experts_per_token, c.inner * largest + 1));
      EXPECT_TRUE(Within(got.ToFloats(), want.ToFloats(), bound)) << table.name << " " << c.name;
    }
  }
}

// What holders of different experts add up to is what one that holds all of them gives; and each
// gives what the whole layer does where other experts' places weigh nothing.
TEST_P(ExpertKernelsTest, HoldersOfDifferentExpertsAddUpToTheLayer) {
  const DType dtype = GetParam();
  const OpTable reference = ReferenceTable();
  std::vector<OpTable> tables = VectorTables({.weight_dtype = dtype});
  tables.push_back(reference);
  for (const ExpertCase& c : kCases) {
    if (c.num_experts == 1) continue;
    const ExpertLayer layer(c, dtype);
    const int64_t num_places = int64_t{c.num_tokens} * c.experts_per_token;
    const Lists lists(c.num_experts, num_places);
    ASSERT_EQ(reference.route(lists.Params(layer.logits, c.experts_per_token, true), stream_),
              Status::Ok());
    const std::vector<int> begins = lists.Ints(lists.begins), tokens = lists.Ints(lists.tokens);
    Tensor inner(layer.input, {num_places, c.inner});
    ASSERT_EQ(reference.expert_gated_linear(layer.Gated(layer.x, lists.view(), inner), stream_),
              Status::Ok());
    double largest = 1;
    for (const float value : inner.ToFloats())
      largest = std::max(largest, std::abs(static_cast<double>(value)));
    // Of inner values that may differ, too.
    const double bound = 2 * SumBound(c.inner + c.experts_per_token, c.inner * largest + 1) +
                         c.experts_per_token * c.inner * 2 * GatedBound(c, largest, layer.input);
    const int cut = (c.num_experts + 2) / 3;
    for (const auto& [first, count] : {std::pair{0, cut}, {cut, c.num_experts - cut}}) {
      const int begin = begins[static_cast<size_t>(first)];
      const int end = begins[static_cast<size_t>(first + count)];
      Lists only(c.num_experts, num_places);  // the others' places weigh 0
      std::copy_n(lists.begins.view().as<int32_t>(), c.num_experts + 1,
                  only.begins.view().as<int32_t>());
      std::copy_n(lists.tokens.view().as<int32_t>(), num_places, only.tokens.view().as<int32_t>());
      for (int p = 0; p < num_places; ++p)
        only.weights.Set(p, p >= begin && p < end ? lists.weights.Get(p) : 0.0F);
      Tensor want(DType::kF32, {c.num_tokens, c.hidden});
      ASSERT_EQ(reference.expert_linear(layer.Linear(inner, only.view(), want), stream_),
                Status::Ok());
      for (const OpTable& table : tables) {
        SCOPED_TRACE(table.name + (" " + std::string(c.name)) + " from " + std::to_string(first));
        const Lists own(count, num_places);
        RouteParams route = own.Params(layer.logits, c.experts_per_token, true);
        route.held = {.first = first, .num_routed = count};
        route.routes.num_holders = 2;
        ASSERT_EQ(table.route(route, stream_), Status::Ok());
        std::vector<int> own_tokens = own.Ints(own.tokens);
        std::vector<float> own_weights = own.weights.ToFloats();
        own_tokens.resize(static_cast<size_t>(end - begin));
        own_weights.resize(own_tokens.size());
        EXPECT_EQ(own.Ints(own.begins).back(), end - begin);
        EXPECT_EQ(own_tokens, std::vector(tokens.begin() + begin, tokens.begin() + end));
        const std::vector<float> weights = lists.weights.ToFloats();
        EXPECT_EQ(own_weights, std::vector(weights.begin() + begin, weights.begin() + end));
        Tensor own_inner(layer.input, {num_places, c.inner});
        ExpertGatedLinearParams gated = layer.Gated(layer.x, route.routes, own_inner);
        gated.weight =
            RowsOf(gated.weight, int64_t{first} * 2 * c.inner, int64_t{count} * 2 * c.inner);
        if (c.bias)
          gated.bias = {layer.fc_bias.view().as<float>() + int64_t{first} * 2 * c.inner,
                        DType::kF32,
                        {int64_t{count} * 2 * c.inner}};
        ASSERT_EQ(table.expert_gated_linear(gated, stream_), Status::Ok());
        Tensor got(DType::kF32, {c.num_tokens, c.hidden});
        ExpertLinearParams linear = layer.Linear(own_inner, route.routes, got);
        linear.weight = RowsOf(linear.weight, int64_t{first} * c.hidden, int64_t{count} * c.hidden);
        if (c.bias)
          linear.bias = {layer.proj_bias.view().as<float>() + int64_t{first} * c.hidden,
                         DType::kF32,
                         {int64_t{count} * c.hidden}};
        ASSERT_EQ(table.expert_linear(linear, stream_), Status::Ok());
        EXPECT_TRUE(Within(got.ToFloats(), want.ToFloats(),
                           std::vector(static_cast<size_t>(c.num_tokens * c.hidden), bound)));
      }
    }
  }
}

// Feed-forward of all tokens of x.
std::vector<float> RunLayer(const OpTable& table, const ExpertLayer& layer, const Tensor& x,
                            const Tensor& logits, Stream& stream) {
  const ExpertCase& c = layer.shape;
  const int64_t num_tokens = x.view().shape[0];
  const int64_t num_places = num_tokens * c.experts_per_token;
  const Lists lists(c.num_experts, num_places);
  Tensor inner(layer.input, {num_places, c.inner});
  Tensor y(DType::kF32, {num_tokens, c.hidden});
  EXPECT_EQ(table.route(lists.Params(logits, c.experts_per_token, false), stream), Status::Ok());
  EXPECT_EQ(table.expert_gated_linear(layer.Gated(x, lists.view(), inner), stream), Status::Ok());
  EXPECT_EQ(table.expert_linear(layer.Linear(inner, lists.view(), y), stream), Status::Ok());
  return y.ToFloats();
}

TEST_P(ExpertKernelsTest, ATokenHasTheSameBitsAloneAndInABatch) {
  const DType dtype = GetParam();
  const ExpertLayer layer({"batch", 150, 5, 2, 64, 64, true, 0, 2.0F}, dtype);
  const ExpertCase& c = layer.shape;
  std::vector<OpTable> tables = VectorTables({.weight_dtype = dtype});
  tables.push_back(ReferenceTable());
  for (const OpTable& table : tables) {
    const std::vector<float> all = RunLayer(table, layer, layer.x, layer.logits, stream_);
    for (const int t : {0, 77, 149}) {
      Tensor x(layer.input, {1, c.hidden});
      Tensor logits(DType::kF32, {1, c.num_experts});
      for (int k = 0; k < c.hidden; ++k) x.Set(k, layer.x.Get(t * c.hidden + k));
      for (int e = 0; e < c.num_experts; ++e)
        logits.Set(e, layer.logits.Get(t * c.num_experts + e));
      const std::vector<float> alone = RunLayer(table, layer, x, logits, stream_);
      const auto row = all.begin() + t * c.hidden;
      EXPECT_TRUE(SameBits(alone, {row, row + c.hidden})) << table.name << ", token " << t;
    }
  }
}

TEST_F(ExpertsTest, IntegerWeightsGiveTheReferencesSums) {
  for (const IntegerForm& form : {IntegerForm{DType::kI8},
                                  {DType::kI4},
                                  {DType::kI8, 32},
                                  {DType::kI8, 64, true},
                                  {DType::kF4E2M1, 32},
                                  {DType::kI4, 16, true},
                                  {DType::kI4, 64}}) {
    const auto fc = IntegerWeight::Some(form, 3 * 2 * 64, 128, 21);
    const auto proj = IntegerWeight::Some(form, 3 * 128, 64, 22);
    const Tensor x = Tensor::Random(DType::kF32, {5, 128}, 23);
    const Lists lists(3, 10);
    const Tensor logits = Tensor::Random(DType::kF32, {5, 3}, 24);
    ASSERT_EQ(ReferenceTable().route(lists.Params(logits, 2, true), stream_), Status::Ok());
    const Tensor scratch = ScratchOf(fc.weight, 10);  // of twice the width of the other
    const auto run = [&](const OpTable& table) {
      Tensor inner(DType::kF32, {10, 64});
      Tensor y(DType::kF32, {5, 128});
      EXPECT_EQ(table.expert_gated_linear({.x = {.values = x.view()},
                                           .routes = lists.view(),
                                           .weight = fc.weight,
                                           .bias = {},
                                           .activation = ActivationKind::kRelu,
                                           .y = inner.view(),
                                           .scratch = scratch.view()},
                                          stream_),
                Status::Ok());
      EXPECT_EQ(table.expert_linear({.x = {.values = inner.view()},
                                     .routes = lists.view(),
                                     .weight = proj.weight,
                                     .bias = {},
                                     .y = y.view(),
                                     .scratch = scratch.view()},
                                    stream_),
                Status::Ok());
      return y.ToFloats();
    };
    const std::vector<float> want = run(ReferenceTable());
    for (const OpTable& table : VectorTables({.weight_dtype = form.dtype}))
      EXPECT_TRUE(SameBits(run(table), want))
          << table.name << " " << DTypeName(form.dtype) << " in groups of " << form.group_size;
    // A holder of experts 1 and 2 alone: rows of codes, scales and offsets from their first on.
    const auto run_held = [&](const OpTable& table) {
      const Lists held(2, 10);
      RouteParams route = held.Params(logits, 2, true);
      route.held = {.first = 1, .num_routed = 2};
      route.routes.num_holders = 2;
      EXPECT_EQ(table.route(route, stream_), Status::Ok());
      Tensor inner(DType::kF32, {10, 64});
      Tensor y(DType::kF32, {5, 128});
      EXPECT_EQ(table.expert_gated_linear({.x = {.values = x.view()},
                                           .routes = route.routes,
                                           .weight = RowsOf(fc.weight, 2 * 64, 2 * 2 * 64),
                                           .bias = {},
                                           .activation = ActivationKind::kRelu,
                                           .y = inner.view(),
                                           .scratch = scratch.view()},
                                          stream_),
                Status::Ok());
      EXPECT_EQ(table.expert_linear({.x = {.values = inner.view()},
                                     .routes = route.routes,
                                     .weight = RowsOf(proj.weight, 128, 2 * 128),
                                     .bias = {},
                                     .y = y.view(),
                                     .scratch = scratch.view()},
                                    stream_),
                Status::Ok());
      return y.ToFloats();
    };
    const Lists others(3, 10);
    ASSERT_EQ(ReferenceTable().route(others.Params(logits, 2, true), stream_), Status::Ok());
    for (int p = 0; p < others.Ints(others.begins)[1]; ++p) lists.weights.view().as<float>()[p] = 0;
    const std::vector<float> want_held = run(ReferenceTable());
    for (const OpTable& table : VectorTables({.weight_dtype = form.dtype}))
      EXPECT_TRUE(SameBits(run_held(table), want_held))
          << table.name << " " << DTypeName(form.dtype) << " in groups of " << form.group_size;
  }
}

TEST_F(ExpertsTest, RefusesWhatDoesNotFitByName) {
  const ExpertLayer layer({"", 2, 3, 2, 64, 64}, DType::kF32);
  for (const OpTable& table : AllTables()) {
    const Lists lists(3, 4);
    RouteParams route = lists.Params(layer.logits, 4, true);
    EXPECT_THAT(table.route(route, stream_).message(),
                HasSubstr("experts_per_token: got 4, needed [1, 3]"));
    ASSERT_EQ(table.route(lists.Params(layer.logits, 2, true), stream_), Status::Ok());
    Tensor inner(DType::kF32, {4, 64});
    ExpertGatedLinearParams gated = layer.Gated(layer.x, lists.view(), inner);
    gated.weight.out_features = 128;
    EXPECT_THAT(table.expert_gated_linear(gated, stream_).message(),
                HasSubstr("weight: got 128 rows"));
    lists.tokens.view().as<int32_t>()[1] = 2;
    Tensor y(DType::kF32, {2, 64});
    EXPECT_THAT(table.expert_linear(layer.Linear(inner, lists.view(), y), stream_).message(),
                HasSubstr("routes.tokens[1]: got 2, needed [0, 2)"));
    lists.begins.view().as<int32_t>()[3] = 3;
    EXPECT_THAT(table.expert_linear(layer.Linear(inner, lists.view(), y), stream_).message(),
                HasSubstr("routes.begins"));
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, ExpertKernelsTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace inflight::ops
