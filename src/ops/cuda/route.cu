// SPDX-License-Identifier: Apache-2.0
// Which experts compute which tokens (RouteParams). A warp chooses for a token; then the places are
// sorted by expert, those of one in the order of tokens, by counting. Few places are chosen and
// sorted by one CTA.
#include <algorithm>

#include "base/status_macros.h"
#include "ops/cuda/experts.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/reduce.cuh"
#include "tensor/cuda_status.h"

namespace inflight::ops::cuda {
namespace {

constexpr int kFewTokens = 32;
constexpr int kFewPlaces = 512;
constexpr int kSortThreads = 1024;
constexpr int kChooseThreads = 256;

struct RouteArgs {
  const float* logits;  // [num_tokens, num_logits]
  int num_tokens;
  int num_logits;
  int num_experts;  // without shared ones
  int num_chosen;
  bool renormalizes;
  HeldExperts held;
  int32_t* begins;   // [num_held + 1]
  int32_t* tokens;   // [num_places]
  float* weights;    // [num_places]
  int32_t* places;   // [num_tokens, num_chosen + held.num_shared]
  int32_t* chosen;   // likewise: held experts, ascending; num_held stands for those that are not
  float* of_chosen;  // likewise: their weights

  __host__ __device__ int per_token() const { return num_chosen + held.num_shared; }
  __host__ __device__ int num_held() const { return held.num_routed + held.num_shared; }
  __host__ __device__ bool has_all() const { return held.num_routed == num_experts; }
};

// As unsigned numbers these are ordered as the values are; 1 of NaN, which comes behind all.
__device__ uint32_t OrderOf(float x) {
  if (isnan(x)) return 1;
  const uint32_t bits = __float_as_uint(x + 0.0F);  // -0 as 0
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

// By a warp: the experts of token `token`, in ascending order of all, and their weights. Lane l
// looks at experts l, l + 32, ...
template <int kPerLane>
__device__ void Choose(const RouteArgs& p, int token, int32_t* experts, float* weights) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float* const logits = p.logits + int64_t{token} * p.num_logits;
  float values[kPerLane];
  uint32_t order[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * kWarp + lane;
    values[i] = expert < p.num_experts ? logits[expert] : 0.0F;
    order[i] = expert < p.num_experts ? OrderOf(values[i]) : 0;
  }
  uint32_t is_chosen = 0;  // bit i: expert i * 32 + lane
  float largest = 0;
  for (int c = 0; c < p.num_chosen; ++c) {
    uint32_t best = 0;
    int at = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (order[i] > best) best = order[i], at = i;
    const uint32_t of_all = __reduce_max_sync(kAllLanes, best);
    const auto own = static_cast<unsigned>(best == of_all ? at * kWarp + lane : INT32_MAX);
    const auto winner = static_cast<int>(__reduce_min_sync(kAllLanes, own));
    const bool is_owner = winner % kWarp == lane;
    float value = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (is_owner && i == winner / kWarp) {
        value = values[i];
        order[i] = 0;
        is_chosen |= 1U << i;
      }
    if (c == 0) largest = __shfl_sync(kAllLanes, value, winner % kWarp);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    values[i] = expf(values[i] - largest);
    const bool counts =
        p.renormalizes ? (is_chosen >> i & 1U) != 0 : i * kWarp + lane < p.num_experts;
    if (counts) sum += values[i];
  }
  sum = WarpSum(sum);
  int before = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const bool is_mine = (is_chosen >> i & 1U) != 0;
    const unsigned lanes = __ballot_sync(kAllLanes, is_mine);
    if (is_mine) {
      const int at = before + __popc(lanes & ((1U << lane) - 1));
      const int held = i * kWarp + lane - p.held.first;
      experts[at] = held >= 0 && held < p.held.num_routed ? held : p.num_held();
      weights[at] = values[i] / sum;
    }
    before += __popc(lanes);
  }
  if (p.held.num_shared == 0) return;
  const float shared = 1.0F / (1.0F + expf(-logits[p.num_experts]));
  for (int i = lane; i < p.held.num_shared; i += kWarp) {
    experts[p.num_chosen + i] = p.held.num_routed + i;
    weights[p.num_chosen + i] = shared;
  }
}

template <int kPerLane>
__global__ void __launch_bounds__(kChooseThreads) ChooseKernel(const RouteArgs p) {
  BeginOverlapped();
  const int token = static_cast<int>(blockIdx.x * (kChooseThreads / kWarp) + threadIdx.x / kWarp);
  if (token >= p.num_tokens) return;
  const int64_t at = int64_t{token} * p.per_token();
  Choose<kPerLane>(p, token, p.chosen + at, p.of_chosen + at);
}

// CTA e: the places of expert e. Each thread looks at a part of the choices, in their order. Where
// not all experts are held, one more CTA has the choices of the others.
__global__ void __launch_bounds__(kSortThreads) SortKernel(const RouteArgs p) {
  __shared__ int2 of_warps[kSortThreads / kWarp];
  BeginOverlapped();
  const int expert = static_cast<int>(blockIdx.x);
  const int per_token = p.per_token();
  const int num_places = p.num_tokens * per_token;
  const int part = (num_places + kSortThreads - 1) / kSortThreads;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int begin = min(thread * part, num_places);
  const int end = min(begin + part, num_places);
  int less = 0;
  int equal = 0;
#pragma unroll 4
  for (int i = begin; i < end; ++i) {
    const int other = p.chosen[i];
    less += other < expert ? 1 : 0;
    equal += other == expert ? 1 : 0;
  }
  // Sums over the threads: of all that is less, and of what is equal before this thread's part.
  int equal_up_to = equal;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int before = __shfl_up_sync(kAllLanes, equal_up_to, distance);
    if (lane >= distance) equal_up_to += before;
  }
  const int less_of_warp = static_cast<int>(__reduce_add_sync(kAllLanes, less));
  if (lane == kWarp - 1) of_warps[thread / kWarp] = {less_of_warp, equal_up_to};
  __syncthreads();
  static_assert(kSortThreads / kWarp == kWarp);
  const int2 of_lane = of_warps[lane];
  const int first = static_cast<int>(__reduce_add_sync(kAllLanes, of_lane.x));
  const int equal_before =
      static_cast<int>(__reduce_add_sync(kAllLanes, lane < thread / kWarp ? of_lane.y : 0));
  if (thread == 0) p.begins[expert] = first;
  if (thread == 0 && expert == 0 && p.has_all()) p.begins[p.num_held()] = num_places;
  if (equal == 0) return;
  int place = first + equal_before + equal_up_to - equal;
  for (int i = begin; i < end; ++i) {
    if (p.chosen[i] != expert) continue;
    if (expert == p.num_held()) {
      p.places[i] = -1;
      continue;
    }
    p.tokens[place] = i / per_token;
    p.weights[place] = p.of_chosen[i];
    p.places[i] = place++;
  }
}

// One CTA: a warp for each token, then a thread for each expert, as a CTA of SortKernel.
template <int kPerLane>
__global__ void __launch_bounds__(kSortThreads) RouteFewKernel(const RouteArgs p) {
  __shared__ int32_t chosen[kFewPlaces];
  __shared__ float weights[kFewPlaces];
  BeginOverlapped();
  const int thread = static_cast<int>(threadIdx.x);
  const int per_token = p.per_token();
  const int num_places = p.num_tokens * per_token;
  const int token = thread / kWarp;
  if (token < p.num_tokens)
    Choose<kPerLane>(p, token, chosen + token * per_token, weights + token * per_token);
  __syncthreads();
  const int num_held = p.num_held();
  if (thread == 0 && p.has_all()) p.begins[num_held] = num_places;
  if (thread >= num_held + (p.has_all() ? 0 : 1)) return;
  int first = 0;
  int equal = 0;
  for (int i = 0; i < num_places; ++i) {
    first += chosen[i] < thread ? 1 : 0;
    equal += chosen[i] == thread ? 1 : 0;
  }
  p.begins[thread] = first;
  if (equal == 0) return;
  for (int i = 0; i < num_places; ++i) {
    if (chosen[i] != thread) continue;
    if (thread == num_held) {
      p.places[i] = -1;
      continue;
    }
    p.tokens[first] = i / per_token;
    p.weights[first] = weights[i];
    p.places[i] = first++;
  }
}

template <int kPerLane>
Status LaunchRouteOf(const RouteArgs& args, CudaStream& stream) {
  const int num_places = args.num_tokens * args.per_token();
  if (args.num_tokens <= kFewTokens && num_places <= kFewPlaces)
    return inflight::cuda::ToStatus(LaunchOverlapped(RouteFewKernel<kPerLane>, dim3(1),
                                                     dim3(kSortThreads), 0, stream.handle(), args),
                                    "route_few");
  constexpr int kTokens = kChooseThreads / kWarp;
  RETURN_IF_ERROR(inflight::cuda::ToStatus(
      LaunchOverlapped(ChooseKernel<kPerLane>,
                       dim3(static_cast<unsigned>((args.num_tokens + kTokens - 1) / kTokens)),
                       dim3(kChooseThreads), 0, stream.handle(), args),
      "route_choose"));
  return inflight::cuda::ToStatus(
      LaunchOverlapped(SortKernel,
                       dim3(static_cast<unsigned>(args.num_held() + (args.has_all() ? 0 : 1))),
                       dim3(kSortThreads), 0, stream.handle(), args),
      "route_sort");
}

}  // namespace

Status LaunchRoute(const RouteParams& params, CudaStream& stream) {
  const auto num_logits = static_cast<int>(params.logits.shape[1]);
  const RouteArgs args = {.logits = params.logits.as<const float>(),
                          .num_tokens = static_cast<int>(params.logits.shape[0]),
                          .num_logits = num_logits,
                          .num_experts = NumRouted(params),
                          .num_chosen = params.experts_per_token,
                          .renormalizes = params.renormalizes,
                          .held = HeldOf(params),
                          .begins = params.routes.begins.as<int32_t>(),
                          .tokens = params.routes.tokens.as<int32_t>(),
                          .weights = params.routes.weights.as<float>(),
                          .places = params.routes.places.as<int32_t>(),
                          .chosen = params.chosen.as<int32_t>(),
                          .of_chosen = params.chosen_weights.as<float>()};
  constexpr int kFewExperts = 128;
  return args.num_experts <= kFewExperts ? LaunchRouteOf<kFewExperts / kWarp>(args, stream)
                                         : LaunchRouteOf<kMaxExperts / kWarp>(args, stream);
}

}  // namespace inflight::ops::cuda
