// SPDX-License-Identifier: Apache-2.0
#include "decoding/top_log_probs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "decoding/row.h"

namespace inflight::decoding {
namespace {

bool IsLikelier(const TopLogProb& a, const TopLogProb& b) {
  return a.log_prob != b.log_prob ? a.log_prob > b.log_prob : a.id < b.id;
}

}  // namespace

std::vector<TopLogProb> TopLogProbs(std::span<const float> logits, int count) {
  const int vocab_size = static_cast<int>(logits.size());
  CHECK_LE(count, vocab_size);
  const float max = MaxOf(logits.data(), vocab_size);
  const bool is_distribution = IsFinite(max);
  const auto logit = [&](TokenId id) {
    const float x = logits[static_cast<size_t>(id)];
    return is_distribution && x > kBanned ? x : kBanned;  // NaN is not greater
  };
  // A heap with the least likely in front; most logits fail the first comparison.
  std::vector<TopLogProb> top;
  top.reserve(static_cast<size_t>(count));
  TokenId id = 0;
  for (; id < count; ++id) top.push_back({.id = id, .log_prob = logit(id)});
  std::make_heap(top.begin(), top.end(), IsLikelier);
  for (; id < vocab_size && count > 0; ++id) {
    if (!(logits[static_cast<size_t>(id)] > top.front().log_prob) || !is_distribution) continue;
    std::pop_heap(top.begin(), top.end(), IsLikelier);
    top.back() = {.id = id, .log_prob = logit(id)};
    std::push_heap(top.begin(), top.end(), IsLikelier);
  }
  std::sort(top.begin(), top.end(), IsLikelier);
  if (!is_distribution) return top;
  const double log_sum = std::log(SumOfExp(logits.data(), vocab_size, max));
  for (TopLogProb& entry : top) {
    entry.log_prob = static_cast<float>(static_cast<double>(entry.log_prob) - max - log_sum);
  }
  return top;
}

}  // namespace inflight::decoding
