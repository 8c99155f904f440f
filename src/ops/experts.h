// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts (arXiv:2101.03961): feed-forwards of which a router gives each token a few.
//
// All experts of a layer lie in one weight, one's rows behind the other's. The rows of each are a
// multiple of 64, so that they begin where a panel of a packed weight begins (ops/weight.h). Only
// the experts that tokens chose are read.
#pragma once

#include <optional>

#include "inflight/status.h"
#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/weight.h"
#include "tensor/stream.h"

namespace inflight::ops {

inline constexpr int kMaxExperts = 1024;
inline constexpr int kExpertPanel = 64;  // rows of an expert's part of a weight are a multiple

// Which tokens an expert computes: a list of places, those of one expert together in the order of
// tokens, the experts in ascending order. num_places = num_tokens * (experts_per_token +
// num_shared).
//
// Where ranks hold different experts (docs/multi-gpu.md, "Experts by rank"), the lists are those of
// the experts that this rank holds, counted from its first one. They have room for num_places,
// [0, begins[num_experts]) of which are written; nobody reads the others.
struct ExpertRoutes {
  TensorView begins;    // [num_experts + 1] int32: those of expert e are [begins[e], begins[e + 1])
  TensorView tokens;    // [num_places] int32
  TensorView weights;   // [num_places] float32: what the expert's output is times
  TensorView places;    // CUDA only: [num_places] int32: of each token its places, ascending; -1
                        // for those of experts that other ranks hold
  int num_holders = 1;  // ranks that hold different experts
};

// What a rank holds of a layer's experts: [first, first + num_routed) of those that the router
// chooses among, and so many shared ones.
struct HeldExperts {
  int first = 0;
  int num_routed = 0;
  int num_shared = 0;

  int size() const { return num_routed + num_shared; }
};

// The experts of each token: those of its experts_per_token largest logits, of equal ones the
// first. Their weights are
//
//   w[t, e] = e^logits[t, e] / sum_i e^logits[t, i]     i over all experts, or, renormalised, over
//                                                       those that were chosen
//
// (Mixtral, arXiv:2401.04088, renormalises; a softmax over the chosen logits alone is the same.)
// Shared experts, which stand behind the others, are every token's, each with the weight
// 1 / (1 + e^-l) of one further logit l (Qwen2-MoE, arXiv:2407.10671).
struct RouteParams {
  TensorView logits;  // [num_tokens, num_experts] float32; with shared experts one more, the last
  int experts_per_token = 1;  // but for those
  int num_shared = 0;
  bool renormalizes = true;
  std::optional<HeldExperts> held;  // unset: all; set where routes has several holders
  ExpertRoutes routes;        // written: of num_experts + num_shared, or of those that are held, of
                              // which num_places has the shared ones alone
  TensorView chosen;          // [num_places] int32 scratch
  TensorView chosen_weights;  // [num_places] float32 scratch
};

// The experts that the router chooses among.
inline int NumRouted(const RouteParams& params) {
  return static_cast<int>(params.logits.shape[1]) - (params.num_shared > 0 ? 1 : 0);
}

// Those whose places are written, and of a token how many places there is room for.
inline HeldExperts HeldOf(const RouteParams& params) {
  return params.held.value_or(
      HeldExperts{.num_routed = NumRouted(params), .num_shared = params.num_shared});
}
inline int PlacesOfToken(const RouteParams& params) {
  return params.experts_per_token + HeldOf(params).num_shared;
}

// Whether the numbers fit each other, of logits of two dimensions: kInvalidArgument names the one
// that does not.
Status CheckNumbers(const RouteParams& params);

// At each place the gated half of its expert's feed-forward, of its token:
//
//   g = x[tokens[p]] G_e^T + gate_bias_e     u = x[tokens[p]] U_e^T + up_bias_e
//   y[p] = act(g) * u
//
// with a limit (gpt-oss, openai/gpt-oss/gpt_oss/torch/model.py, swiglu)
//
//   y[p] = g' / (1 + e^(-1.702 g')) * (u' + 1)     g' = min(g, limit), u' = min(max(u, -limit),
//                                                  limit)
struct ExpertGatedLinearParams {
  Activation x;  // [num_tokens, in_features]
  ExpertRoutes routes;
  Weight weight;    // [num_experts * 2 * width, in_features]: of each expert U_e, then G_e
  TensorView bias;  // [num_experts * 2 * width] float32, likewise; empty = none
  ActivationKind activation = ActivationKind::kSilu;
  float limit = 0;       // 0 = none
  TensorView y;          // [num_places, width] f32 | bf16, the dtype that the next linear reads; on
                         // CUDA the weight's, of FP8 ones as of QuantizeParams
  TensorView y_scales;   // [num_places] float32; of y in f8e4m3
  TensorView scratch;    // [>= LinearScratchBytes of num_tokens] as of LinearParams
  TensorView workspace;  // CUDA, of y in f8e4m3: [num_places, width] of the model's dtype
};

// The other half, added up over the experts of a token in ascending order:
//
//   y[t] = sum_p weights[p] * (x[p] D_e^T + bias_e)     p over the places of t, e each one's expert
struct ExpertLinearParams {
  Activation x;  // [num_places, in_features]
  ExpertRoutes routes;
  Weight weight;         // [num_experts * width, in_features]
  TensorView bias;       // [num_experts * width] float32; empty = none
  TensorView y;          // [num_tokens, width] float32; on CUDA that or the model's dtype
  TensorView scratch;    // [>= LinearScratchBytes of num_places] as of LinearParams
  TensorView workspace;  // CUDA only: [num_places, width] float32
};

}  // namespace inflight::ops
