// SPDX-License-Identifier: Apache-2.0
#include "decoding/draft_acceptance.h"

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "decoding/row.h"
#include "decoding/weights.h"

namespace inflight::decoding {
namespace {

struct Weighed {
  float distance;
  int32_t weight;
  TokenId id;
};

constexpr auto kHeaviestFirst = [](const Weighed& a, const Weighed& b) {
  return a.distance < b.distance || (a.distance == b.distance && a.id < b.id);
};

// The tokens that the rule keeps before top-p, heaviest first.
std::vector<Weighed> Kept(const SamplingRule& rule, std::span<const float> logits, float max) {
  std::vector<Weighed> kept;
  for (size_t id = 0; id < logits.size(); ++id) {
    const float distance = Distance(max, logits[id]);
    kept.push_back({distance, Weight(distance), static_cast<TokenId>(id)});
  }
  if (rule.top_k > 0 && static_cast<size_t>(rule.top_k) < kept.size()) {
    std::nth_element(kept.begin(), kept.begin() + rule.top_k, kept.end(), kHeaviestFirst);
    kept.resize(static_cast<size_t>(rule.top_k));
  }
  const int32_t min_weight = std::max(1, InUnits(rule.min_p));
  std::erase_if(kept, [min_weight](const Weighed& w) { return w.weight < min_weight; });
  std::sort(kept.begin(), kept.end(), kHeaviestFirst);
  return kept;
}

double ShareOf(const Distribution& distribution, TokenId id) {
  const auto found =
      std::ranges::lower_bound(distribution.shares, id, {}, &Distribution::Share::id);
  return found != distribution.shares.end() && found->id == id ? found->share : 0;
}

}  // namespace

Distribution DistributionOf(const SamplingRule& rule, float top_p, std::span<const float> logits) {
  const auto vocab_size = static_cast<int>(logits.size());
  const float max = MaxOf(logits.data(), vocab_size);
  if (rule.greedy || !IsFinite(max))
    return {.shares = {{ArgMax(logits.data(), vocab_size, max), 1.0}}};
  const std::vector<Weighed> kept = Kept(rule, logits, max);
  uint64_t sum = 0;
  for (const Weighed& token : kept) sum += static_cast<uint64_t>(token.weight);
  const uint64_t all = TargetWeight(1.0, rule.top_k > 0 ? rule.top_p : top_p, sum);
  Distribution out{.kept = static_cast<double>(sum) / static_cast<double>(kUnitWeight)};
  uint64_t before = 0;
  for (const Weighed& token : kept) {
    const uint64_t weight = std::min(static_cast<uint64_t>(token.weight), all - before);
    out.shares.push_back({token.id, static_cast<double>(weight) / static_cast<double>(all)});
    before += weight;
    if (before == all) break;
  }
  std::ranges::sort(out.shares, {}, &Distribution::Share::id);
  return out;
}

TokenId AcceptOrReplace(const Distribution& p, const Distribution& q, TokenId token,
                        double accept_at, double replace_at) {
  const double share = ShareOf(p, token);
  if (share > 0 && share >= accept_at * ShareOf(q, token)) return token;
  double sum = 0;
  const auto rest = [&q](const Distribution::Share& s) {
    return std::max(0.0, s.share - ShareOf(q, s.id));
  };
  for (const Distribution::Share& s : p.shares) sum += rest(s);
  CHECK(!p.shares.empty());
  TokenId last = p.shares.front().id;  // p = q but for rounding: any of them
  double cumulative = 0;
  for (const Distribution::Share& s : p.shares) {
    if (rest(s) <= 0) continue;
    last = s.id;
    cumulative += rest(s);
    if (cumulative >= replace_at * sum) break;
  }
  return last;
}

}  // namespace inflight::decoding
