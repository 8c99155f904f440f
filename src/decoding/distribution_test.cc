// SPDX-License-Identifier: Apache-2.0
// Draws against the formulas of docs/reference/decoding.md, by chi-square over a million of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "decoding/sampler.h"

namespace inflight::decoding {
namespace {

constexpr int kTokens = 32;
constexpr int kDraws = 1000000;

// No two equal, in no order.
std::vector<float> Logits() {
  std::vector<float> logits(kTokens);
  for (int i = 0; i < kTokens; ++i)
    logits[static_cast<size_t>(i)] = 4.0F - 0.2F * static_cast<float>(i * 13 % kTokens);
  return logits;
}

// P of each id in double precision: min-p beside the heaviest, the top_k heaviest of those, and of
// their mass the first top_p in descending order.
std::vector<double> Probabilities(const SamplingParams& params) {
  const std::vector<float> logits = Logits();
  const double temperature = params.temperature ? *params.temperature + 1e-6 : 1.0;
  std::vector<double> weights;
  for (const float x : logits) weights.push_back(std::exp(double{x} / temperature));
  std::vector<int> order(kTokens);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return weights[a] > weights[b]; });
  const double least = params.min_p.value_or(0.0F) * weights[order.front()];
  while (weights[order.back()] < least) order.pop_back();
  if (params.top_k && *params.top_k > 0)
    order.resize(std::min(order.size(), static_cast<size_t>(*params.top_k)));
  double sum = 0;
  for (const int id : order) sum += weights[id];
  const double kept = sum * (params.top_p && *params.top_p > 0 ? double{*params.top_p} : 1.0);
  std::vector<double> result(kTokens);
  double left = kept;
  for (const int id : order) {
    const double mass = std::min(left, weights[id]);
    result[id] = mass / kept;
    left -= mass;
  }
  return result;
}

// Five standard deviations of the statistic above its mean.
double LargestChiSquare(int num_bins) { return num_bins - 1 + 5 * std::sqrt(2.0 * num_bins); }

void ExpectFollows(const std::vector<double>& counts, const std::vector<double>& probabilities) {
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  double statistic = 0;
  int num_bins = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double want = total * probabilities[i];
    if (want < 1e-6) {
      EXPECT_EQ(counts[i], 0) << "id " << i << " was not to be drawn";
      continue;
    }
    statistic += (counts[i] - want) * (counts[i] - want) / want;
    ++num_bins;
  }
  EXPECT_LT(statistic, LargestChiSquare(num_bins)) << num_bins << " bins";
}

TEST(DistributionTest, AMillionDrawsOfEachKindFollowTheFormula) {
  const std::vector<std::pair<const char*, SamplingParams>> cases = {
      {"top-k", {.top_k = 10}},
      {"top-p inside top-k", {.top_k = 10, .top_p = 0.8F}},
      {"top-p", {.top_p = 0.9F}},
      {"top-p, hot", {.temperature = 1.7F, .top_p = 0.6F}},
      {"min-p", {.min_p = 0.2F}},
      {"min-p before top-k", {.top_k = 15, .min_p = 0.03F}},
      {"min-p before top-p", {.temperature = 0.6F, .top_p = 0.7F, .min_p = 0.05F}},
  };
  const std::vector<float> logits = Logits();
  const std::vector<TokenId> tokens(kDraws);  // only their number counts
  for (const auto& [name, params] : cases) {
    SCOPED_TRACE(name);
    Request request;
    request.sampling = params;
    Sampler sampler(1, kTokens, 1);
    sampler.Setup(0, MakeSamplingRule(request, 3, /*num_prompt_tokens=*/0), {}, kDraws);
    std::vector<double> counts(kTokens);
    std::vector<float> row;
    for (size_t i = 0; i < kDraws; ++i) {
      row = logits;
      ++counts[sampler.Sample(0, std::span(tokens).first(i), row.data()).id];
    }
    ExpectFollows(counts, Probabilities(params));
  }
}

// A thousand slots with neighbouring seeds: each draws by the formula, and the draws of neighbours
// at one position are independent.
TEST(DistributionTest, SlotsWithNeighbouringSeedsDrawIndependently) {
  constexpr int kSlots = 1000;
  constexpr int kPositions = 1000;
  constexpr int kIds = 8;
  Request request;
  request.sampling.top_p = 1.0F;
  Sampler sampler(kSlots, kIds, 1);
  for (int slot = 0; slot < kSlots; ++slot)
    sampler.Setup(slot, MakeSamplingRule(request, static_cast<uint64_t>(slot), 0), {}, kPositions);
  const std::vector<TokenId> tokens(kPositions);
  std::vector<double> counts(kIds);
  std::vector<double> pairs(size_t{kIds} * kIds);
  for (size_t i = 0; i < kPositions; ++i) {
    TokenId left = 0;
    for (int slot = 0; slot < kSlots; ++slot) {
      std::vector<float> row(kIds);
      const TokenId id = sampler.Sample(slot, std::span(tokens).first(i), row.data()).id;
      ++counts[static_cast<size_t>(id)];
      if (slot % 2 == 1) ++pairs[static_cast<size_t>(left * kIds + id)];
      left = id;
    }
  }
  ExpectFollows(counts, std::vector<double>(kIds, 1.0 / kIds));
  ExpectFollows(pairs, std::vector<double>(pairs.size(), 1.0 / (kIds * kIds)));
}

}  // namespace
}  // namespace inflight::decoding
