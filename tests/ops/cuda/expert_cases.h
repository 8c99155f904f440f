// SPDX-License-Identifier: Apache-2.0
// Cases of experts, and what tests of them give both operators.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "against_reference.h"
#include "ops/experts.h"

namespace inflight::ops {

struct ExpertCase {
  const char* name;
  int num_tokens;
  int num_experts;  // without shared ones
  int experts_per_token;
  int hidden;
  int inner;
  int num_shared = 0;
  bool bias = false;
  float limit = 0;
  float skew = 0;  // of the logits towards expert 1, or 0 where it is the only one
  bool renormalizes = true;
  ActivationKind activation = ActivationKind::kSilu;

  int NumExperts() const { return num_experts + num_shared; }
  int64_t NumPlaces() const { return int64_t{num_tokens} * (experts_per_token + num_shared); }
};

inline constexpr ExpertCase kExpertCases[] = {
    {"one_token", 1, 8, 2, 64, 64},
    {"no_token", 0, 4, 2, 64, 64},
    {"one_expert", 5, 1, 1, 128, 64, 0, true},
    {"all_experts", 3, 3, 3, 64, 128, 0, true},
    {"limited", 9, 6, 2, 192, 64, 0, true, 0.4F},
    {"many_experts", 13, 96, 8, 64, 192},
    {"more_experts", 40, 300, 7, 64, 64, 0, false, 0, 0, false},
    {"all_on_one", 70, 5, 1, 192, 64, 0, true, 0, 50},
    {"shared", 33, 5, 2, 64, 128, 2, true},
    {"shared_one_token", 1, 130, 2, 128, 64, 1, false, 0, 0, false},
    {"skewed", 300, 4, 2, 64, 128, 0, true, 0, 8, true, ActivationKind::kGeluTanh},
    {"a_thousand", 1000, 16, 2, 192, 192, 0, true},
    {"large_tiles", 1000, 3, 1, 64, 64, 1, false, 0, 1},
};

struct Lists {
  explicit Lists(const ExpertCase& c)
      : begins(DType::kI32, {c.NumExperts() + 1}),
        tokens(DType::kI32, {c.NumPlaces()}),
        weights(DType::kF32, {c.NumPlaces()}),
        chosen(DType::kI32, {c.NumPlaces()}),
        chosen_weights(DType::kF32, {c.NumPlaces()}) {}
  ExpertRoutes view() const { return {begins.view(), tokens.view(), weights.view(), {}}; }

  Tensor begins, tokens, weights, chosen, chosen_weights;
};

inline std::vector<int> Ints(const Tensor& tensor) {
  const auto* values = tensor.view().as<const int32_t>();
  return {values, values + tensor.view().num_elements()};
}

// Two ranks that hold a case's experts, the second one the shared ones too.
inline constexpr int kHolders = 2;
inline HeldExperts HeldBy(int holder, const ExpertCase& c) {
  const int cut = (c.num_experts + 2) / 3;
  return holder == 0
             ? HeldExperts{.num_routed = cut}
             : HeldExperts{
                   .first = cut, .num_routed = c.num_experts - cut, .num_shared = c.num_shared};
}
// What lists and outputs of a holder are made for.
inline ExpertCase CaseOf(const HeldExperts& held, ExpertCase c) {
  c.num_experts = held.num_routed;
  c.num_shared = held.num_shared;
  return c;
}

class ExpertsTest : public AgainstReference {
 protected:
  struct DeviceLists {
    DeviceLists(Device& device, const ExpertCase& c)
        : begins(device, DType::kI32, {c.NumExperts() + 1}),
          tokens(device, DType::kI32, {c.NumPlaces()}),
          weights(device, DType::kF32, {c.NumPlaces()}),
          places(device, DType::kI32, {c.NumPlaces()}),
          chosen(device, DType::kI32, {c.NumPlaces()}),
          chosen_weights(device, DType::kF32, {c.NumPlaces()}) {}
    ExpertRoutes view() const {
      return {begins.view(), tokens.view(), weights.view(), places.view()};
    }
    bool IsIntact() const {
      for (const DeviceTensor* t : {&begins, &tokens, &weights, &places, &chosen, &chosen_weights})
        if (!t->Damage().empty()) return false;
      return true;
    }

    DeviceTensor begins, tokens, weights, places, chosen, chosen_weights;
  };

  static RouteParams Params(const ExpertCase& c, const TensorView& logits) {
    return {.logits = logits,
            .experts_per_token = c.experts_per_token,
            .num_shared = c.num_shared,
            .renormalizes = c.renormalizes,
            .routes = {},
            .chosen = {},
            .chosen_weights = {}};
  }
  static Tensor LogitsOf(const ExpertCase& c) {
    const int width = c.num_experts + (c.num_shared > 0 ? 1 : 0);
    Tensor logits = Tensor::Random(DType::kF32, {c.num_tokens, width}, 8);
    const int favourite = c.num_experts > 1 ? 1 : 0;
    for (int64_t t = 0; t < c.num_tokens; ++t)
      logits.Set(t * width + favourite, logits.Get(t * width + favourite) + c.skew);
    return logits;
  }
  void Route(const ExpertCase& c, const Tensor& logits, const DeviceLists& lists,
             std::optional<HeldExperts> held = std::nullopt) {
    const DeviceTensor device_logits = ToDevice(logits);
    RouteParams params = Params(c, device_logits.view());
    params.held = held;
    params.routes = lists.view();
    params.routes.num_holders = held ? kHolders : 1;
    params.chosen = lists.chosen.view();
    params.chosen_weights = lists.chosen_weights.view();
    ASSERT_EQ(cuda::Route(params, stream()), Status::Ok()) << c.name;
    Synchronize();
  }
  // Routes to all experts of which the places of those that are not held weigh nothing.
  ExpertRoutes WithoutOthers(const HeldExperts& held, const ExpertCase& c, const DeviceLists& all,
                             DeviceTensor& weights) {
    const std::vector<int> begins = Ints(all.begins.ToHost());
    Tensor only = all.weights.ToHost();
    const int first = begins[static_cast<size_t>(held.first)];
    const int end = begins[static_cast<size_t>(held.first + held.num_routed)];
    const int shared = held.num_shared > 0 ? begins[static_cast<size_t>(c.num_experts)]
                                           : begins[static_cast<size_t>(c.NumExperts())];
    for (int p = 0; p < c.NumPlaces(); ++p)
      if ((p < first || p >= end) && p < shared) only.Set(p, 0);
    weights = ToDevice(only);
    ExpertRoutes routes = all.view();
    routes.weights = weights.view();
    return routes;
  }
};

inline Weight PlainWeight(const TensorView& view) {
  return {.data = view.data,
          .dtype = view.dtype,
          .out_features = view.shape[0],
          .in_features = view.shape[1]};
}

inline ExpertGatedLinearParams Gated(const ExpertCase& c, const TensorView& x,
                                     const ExpertRoutes& routes, const TensorView& fc,
                                     const TensorView& bias, const TensorView& y) {
  return {.x = {.values = x},
          .routes = routes,
          .weight = PlainWeight(fc),
          .bias = c.bias ? bias : TensorView{},
          .activation = c.activation,
          .limit = c.limit,
          .y = y};
}

inline ExpertLinearParams Down(const ExpertCase& c, const TensorView& x, const ExpertRoutes& routes,
                               const TensorView& proj, const TensorView& bias,
                               const TensorView& y) {
  return {.x = {.values = x},
          .routes = routes,
          .weight = PlainWeight(proj),
          .bias = c.bias ? bias : TensorView{},
          .y = y};
}

// Of a float32 sum of k products of random signs, each below `largest`: what is added up so far
// stays far below k of them, and is rounded once for each 8 or 16.
inline double RandomSumBound(int k, double largest) { return 4 * kUnit * k * largest; }

inline double LargestOf(const Tensor& tensor) {
  double largest = 0;
  for (const float value : tensor.ToFloats())
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  return largest;
}

}  // namespace inflight::ops
