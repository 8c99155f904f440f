// SPDX-License-Identifier: Apache-2.0
// Locally typical draws of RowSampler (sample_row.cuh, which includes this): Sampler::DrawTypical
// of the CPU. Each set that it keeps ends at a key of the order, or at a distance from the mean
// one: four searches as Narrow makes them, each to its end.
#pragma once

#include "decoding/cuda/sample_row.cuh"

namespace inflight::decoding {

// Sums f(weight, distance) over the tokens of `view` in the whole row, for every thread.
template <bool kResident>
template <typename View, typename F>
__device__ uint64_t RowSampler<kResident>::RowTotal(View view, F f) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint64_t own = 0;
  ForEachWithin<false>(kWeightless, [&](float distance, int32_t weight, int i) {
    if (view(distance, begin_ + i)) own += f(weight, distance);
  });
  own = WarpTotal(own);
  if (lane == 0) shared_.warp_sums[warp].mass = own;
  __syncthreads();
  if (warp == 0) {
    own = WarpTotal(lane < kNumWarps ? shared_.warp_sums[lane].mass : 0);
    if (lane < cluster_size_) Peer(&shared_.sums[rank_], lane)->mass = own;
  }
  ClusterSync();
  uint64_t total = 0;
  for (int r = 0; r < cluster_size_; ++r) total += shared_.sums[r].mass;
  ClusterSync();  // before anybody writes there again
  return total;
}

// Sampler::DrawTypical of the CPU: each set of it ends at a key, or at a distance from the mean.
template <bool kResident>
__device__ void RowSampler<kResident>::DrawTypical() {
  const bool is_top_k = rule().kind == DrawKind::kTopK;
  const auto weigh = [](int32_t weight, float) { return static_cast<uint64_t>(weight); };
  RowSums sums = {};
  if (rule().wants_log_probs != 0) {
    ForEach([&](float x, int) { sums.exps += ExpOfMinus(Distance(max_, x)); });
    sums = ClusterSum(sums, Wanted::kExps);
    ClusterSync();  // before anybody writes to shared_.sums again
  }
  uint64_t end = ~uint64_t{0};  // of the keys that are left
  if (is_top_k) {
    end = Narrow<true, true>(static_cast<uint64_t>(rule().top_k), kWeightless).end;
  }
  const auto is_left = [&](float& distance, int id) { return Key(distance, id) < end; };
  const uint64_t sum = RowTotal(is_left, weigh);
  uint64_t left = sum;
  if (rule().top_p < 1.0F) {
    const uint64_t target = TargetWeight(1.0, rule().top_p, sum);
    end = Narrow<false, true>(target, kWeightless, is_left).end;
    left = RowTotal(is_left, weigh);
  }
  const float mean = MeanDistance(
      RowTotal(is_left,
               [](int32_t weight, float distance) { return WeighedDistance(weight, distance); }),
      left);
  const auto by_atypicality = [&](float& distance, int id) {
    if (Key(distance, id) >= end) return false;
    distance = Atypicality(distance, mean);
    return true;
  };
  const float bound = DistanceOf(
      Narrow<false, true>(TargetWeight(1.0, rule().typical_p, left), kWeightless, by_atypicality)
          .begin);
  const auto is_typical = [&](float& distance, int id) {
    return Key(distance, id) < end && Atypicality(distance, mean) <= bound;
  };
  const uint64_t target = TargetWeight(shared_.uniform, 1.0F, RowTotal(is_typical, weigh));
  const uint64_t drawn = Narrow<false, true>(target, kWeightless, is_typical).begin;
  if (rank_ != 0 || threadIdx.x != 0) return;
  if (is_top_k)
    WriteDrawn<true>(drawn, sum, sums);
  else
    WriteDrawn<false>(drawn, sum, sums);
}

}  // namespace inflight::decoding
