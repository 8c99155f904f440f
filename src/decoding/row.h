// SPDX-License-Identifier: Apache-2.0
// Passes over a row of logits. Inline, so that they vectorise where they are used.
#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "decoding/weights.h"
#include "inflight/request.h"

namespace inflight::decoding {

// Elements that loops over a row take at a time, so that they vectorise.
constexpr int kBlock = 256;

inline float MaxOf(const float* x, int n) {
  std::array<float, 16> lanes;
  lanes.fill(-std::numeric_limits<float>::infinity());
  int i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  return *std::max_element(lanes.begin(), lanes.end());
}

// The first of the largest.
inline TokenId ArgMax(const float* x, int n, float max) {
  if (max == -std::numeric_limits<float>::infinity()) return 0;
  return static_cast<TokenId>(std::find(x, x + n, max) - x);
}

// sum(exp(x - max))
inline double SumOfExp(const float* x, int n, float max) {
  double sum = 0;
  std::array<float, kBlock> terms;
  for (int begin = 0; begin < n; begin += kBlock) {
    const int size = std::min(kBlock, n - begin);
    for (int i = 0; i < size; ++i) terms[i] = ExpOfMinus(Distance(max, x[begin + i]));
    for (int i = size; i < kBlock; ++i) terms[i] = 0;
    for (int width = kBlock / 2; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) terms[i] += terms[i + width];
    sum += terms[0];
  }
  return sum;
}

}  // namespace inflight::decoding
