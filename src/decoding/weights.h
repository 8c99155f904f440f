// SPDX-License-Identifier: Apache-2.0
// The arithmetic of sampling that CPU and GPU share, so that equal logits give equal tokens.
//
// A logit counts by its distance below the largest, d = max - l, and weighs exp(-d) in whole units
// of 2^-30, so that sums depend on no order. The order of tokens, heaviest first, is by (d, id).
//
// Every float operation is written out. What includes this is compiled without contraction of
// a * b + c to one operation (-ffp-contract=off, --fmad=false); constexpr lets device code call it.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace inflight::decoding {

constexpr int kMaxTopK = 1024;  // larger values are clipped to it

constexpr float TemperatureScale(float temperature) {
  return temperature == 1.0F ? 1.0F : 1.0F / (temperature + 1e-6F);
}

// Of a token that occurred `count` > 0 times, after temperature.
constexpr float Penalized(float logit, int32_t count, float repetition, float presence,
                          float frequency) {
  logit = logit < 0.0F ? logit * repetition : logit / repetition;
  logit = logit - presence;
  return logit - frequency * static_cast<float>(count);
}

// What a token gets that must not come, and an end id that comes too early.
constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr float kSuppressed = -std::numeric_limits<float>::max();

// Top-p after a token was drawn with `top_p`.
constexpr float kDefaultTopPMin = 1e-6F;
constexpr float NextTopP(float top_p, float first, float decay, float min, bool is_reset) {
  if (is_reset) return first;
  const float decayed = top_p * decay;
  return decayed > min ? decayed : min;
}

constexpr bool IsFinite(float x) { return x - x == 0.0F; }

// In [0, kFarthest], also for NaN and infinities as long as `max` is finite.
constexpr float kFarthest = 80.0F;
constexpr float Distance(float max, float logit) {
  const float distance = max - logit;
  return distance < kFarthest ? distance : kFarthest;
}

// exp(-d), d in [0, kFarthest]: 2^n times a polynomial in f in [-1/2, 1/2], the least largest
// relative error of degree 5 with p(0) = 1. Relative error below 2.5e-7 + 7.5e-8 d, the second part
// that of d * log2(e). Exactly 1 at 0.
constexpr float ExpOfMinus(float distance) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: the sum's last bits are the nearest integer
  const float t = distance * -0x1.715476p+0F;
  const float shifted = t + kMagic;
  const float f = t - (shifted - kMagic);
  float p = 0x1.5bba14p-10F;
  p = p * f + 0x1.3cea88p-7F;
  p = p * f + 0x1.c6b752p-5F;
  p = p * f + 0x1.ebf9bcp-3F;
  p = p * f + 0x1.62e42ap-1F;
  p = p * f + 1.0F;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) +
                              (std::bit_cast<uint32_t>(shifted) << 23));
}

constexpr int32_t kUnitWeight = 1 << 30;  // the heaviest token's
constexpr int32_t InUnits(float share) {
  // A share is not negative. NOLINTNEXTLINE(bugprone-incorrect-roundings)
  return static_cast<int32_t>(share * static_cast<float>(kUnitWeight) + 0.5F);
}
constexpr int32_t Weight(float distance) { return InUnits(ExpOfMinus(distance)); }
constexpr float kWeightless = 21.5F;  // from this distance on weights are 0

// Locally typical sampling (arXiv:2202.00666) keeps the tokens whose information is nearest to the
// entropy of all. Both hold the logarithm of the weights' sum, which leaves
//   -log P(t) - H = d(t) - sum_i P(i) d(i)
// the distance of a token's d from the mean one: what is kept is an interval of distances. The sum
// is taken in whole units of 2^-46, so that it depends on no order; 2^19 tokens do not overflow it.
constexpr float kDistanceUnits = 65536.0F;
constexpr uint64_t WeighedDistance(int32_t weight, float distance) {
  // A distance is not negative. NOLINTNEXTLINE(bugprone-incorrect-roundings)
  return static_cast<uint64_t>(weight) * static_cast<uint64_t>(distance * kDistanceUnits + 0.5F);
}
constexpr float MeanDistance(uint64_t weighed_distances, uint64_t weights) {
  return static_cast<float>(static_cast<double>(weighed_distances) /
                            (static_cast<double>(weights) * static_cast<double>(kDistanceUnits)));
}
constexpr float Atypicality(float distance, float mean) {
  return distance < mean ? mean - distance : distance - mean;
}

// What a draw u in (0, 1] of a total weight `sum` > 0 reaches for: the token is the first in order
// whose cumulative weight is not below it.
constexpr uint64_t TargetWeight(double uniform, float top_p, uint64_t sum) {
  const double target = uniform * static_cast<double>(top_p) * static_cast<double>(sum);
  uint64_t rounded_up = static_cast<uint64_t>(target);
  if (static_cast<double>(rounded_up) < target) ++rounded_up;
  if (rounded_up < 1) rounded_up = 1;
  return rounded_up < sum ? rounded_up : sum;
}

}  // namespace inflight::decoding
