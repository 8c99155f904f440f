// SPDX-License-Identifier: Apache-2.0
#include "decoding/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <thread>

#include "base/check.h"
#include "decoding/philox.h"

namespace inflight::decoding {
namespace {

constexpr int kMaxTopK = 1024;  // larger values are clipped to it (spec/engine.md 3.2)

float MaxOf(const float* x, int n) {
  std::array<float, 16> lanes;
  lanes.fill(-std::numeric_limits<float>::infinity());
  int i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  return *std::max_element(lanes.begin(), lanes.end());
}

TokenId ArgMax(const float* x, int n, float max) {
  const float* found = std::find(x, x + n, max);
  return found == x + n ? 0 : static_cast<TokenId>(found - x);
}

// log(sum(exp(x - max))) + max
double LogSumExp(const float* x, int n, float max) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += std::exp(x[i] - max);
  return static_cast<double>(max) + std::log(sum);
}

bool Heavier(float weight_a, TokenId id_a, float weight_b, TokenId id_b) {
  return weight_a > weight_b || (weight_a == weight_b && id_a < id_b);
}

}  // namespace

struct Sampler::Slot {
  SamplingRule rule;
  std::vector<int32_t>
      counts;  // [vocab_size] occurrences; sized by the first sequence with penalties
  std::vector<TokenId> distinct;  // tokens whose count is not zero
};

// Holds one lane for the time of a call.
class Sampler::Scratch {
 public:
  explicit Scratch(std::vector<std::unique_ptr<Lane>>& lanes) {
    while (true) {
      for (auto& lane : lanes) {
        if (lane->busy.test_and_set(std::memory_order_acquire)) continue;
        lane_ = lane.get();
        return;
      }
      std::this_thread::yield();
    }
  }
  ~Scratch() { lane_->busy.clear(std::memory_order_release); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::vector<Candidate>& candidates() { return lane_->candidates; }

 private:
  Lane* lane_ = nullptr;
};

SamplingRule MakeSamplingRule(const Request& request, uint64_t seed) {
  const SamplingParams& params = request.sampling;
  SamplingRule rule;
  rule.temperature = params.temperature.value_or(1.0F);
  rule.top_k = std::min(params.top_k.value_or(0), kMaxTopK);
  rule.top_p = params.top_p.value_or(0.0F);
  rule.min_p = params.min_p.value_or(0.0F);
  rule.greedy = rule.top_k == 1 || rule.temperature == 0.0F ||
                (rule.top_k == 0 && rule.top_p <= 0.0F && rule.min_p <= 0.0F);
  if (rule.temperature == 0.0F) rule.temperature = 1.0F;
  if (rule.top_p <= 0.0F) rule.top_p = 1.0F;
  rule.repetition_penalty = params.repetition_penalty.value_or(1.0F);
  rule.presence_penalty = params.presence_penalty.value_or(0.0F);
  rule.frequency_penalty = params.frequency_penalty.value_or(0.0F);
  rule.wants_log_probs = request.output.return_log_probs;
  rule.normalize_log_probs = request.output.normalize_log_probs;
  rule.seed = seed;
  return rule;
}

Sampler::Sampler(int max_slots, int vocab_size, int max_concurrency) : vocab_size_(vocab_size) {
  slots_.resize(static_cast<size_t>(max_slots));
  for (int i = 0; i < std::max(1, max_concurrency); ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->candidates.reserve(static_cast<size_t>(vocab_size));
  }
}

Sampler::~Sampler() = default;

uint64_t Sampler::Bytes(int max_slots, int vocab_size, int max_seq_len) {
  const auto counts = static_cast<uint64_t>(vocab_size) * sizeof(int32_t);
  const auto distinct = static_cast<uint64_t>(std::min(vocab_size, max_seq_len)) * sizeof(TokenId);
  return static_cast<uint64_t>(max_slots) * (counts + distinct);
}

void Sampler::Setup(int slot_id, const SamplingRule& rule, std::span<const TokenId> tokens,
                    int max_seq_len) {
  Slot& slot = slots_[static_cast<size_t>(slot_id)];
  for (const TokenId token : slot.distinct) slot.counts[static_cast<size_t>(token)] = 0;
  slot.distinct.clear();
  slot.rule = rule;
  if (!rule.has_penalties()) return;
  slot.counts.resize(static_cast<size_t>(vocab_size_));
  slot.distinct.reserve(static_cast<size_t>(std::min(vocab_size_, max_seq_len)));
  for (const TokenId token : tokens) Append(slot_id, token);
}

void Sampler::Append(int slot_id, TokenId token) {
  Slot& slot = slots_[static_cast<size_t>(slot_id)];
  if (!slot.rule.has_penalties() || token >= vocab_size_) return;
  if (slot.counts[static_cast<size_t>(token)]++ == 0) slot.distinct.push_back(token);
}

void Sampler::ApplyPenalties(const Slot& slot, float* logits) const {
  const SamplingRule& rule = slot.rule;
  for (const TokenId token : slot.distinct) {
    float logit = logits[token];
    logit = logit < 0 ? logit * rule.repetition_penalty : logit / rule.repetition_penalty;
    logit -= rule.presence_penalty;
    logit -= rule.frequency_penalty * static_cast<float>(slot.counts[static_cast<size_t>(token)]);
    logits[token] = logit;
  }
}

SampledToken Sampler::Sample(int slot_id, int64_t position, float* logits) {
  const Slot& slot = slots_[static_cast<size_t>(slot_id)];
  const SamplingRule& rule = slot.rule;
  if (rule.temperature != 1.0F) {
    const float scale = 1.0F / (rule.temperature + 1e-6F);
    for (int i = 0; i < vocab_size_; ++i) logits[i] *= scale;
  }
  if (rule.has_penalties()) ApplyPenalties(slot, logits);
  const float max = MaxOf(logits, vocab_size_);
  if (rule.greedy) {
    SampledToken token{.id = ArgMax(logits, vocab_size_, max)};
    if (rule.wants_log_probs) {
      token.log_prob_all = static_cast<float>(max - LogSumExp(logits, vocab_size_, max));
      token.log_prob = token.log_prob_all;
    }
    return token;
  }
  Scratch scratch(lanes_);
  const double uniform = UniformAt(rule.seed, static_cast<uint64_t>(position));
  SampledToken token = rule.top_k > 0
                           ? SampleTopK(rule, uniform, logits, max, scratch.candidates())
                           : SampleTopP(rule, uniform, logits, max, scratch.candidates());
  if (rule.wants_log_probs && rule.top_k > 0) {
    token.log_prob_all = static_cast<float>(logits[token.id] - LogSumExp(logits, vocab_size_, max));
    if (!rule.normalize_log_probs) token.log_prob = token.log_prob_all;
  }
  return token;
}

// r = u p S over the k heaviest, S their sum; the first whose cumulative weight reaches r
// (spec/engine.md 4.8).
SampledToken Sampler::SampleTopK(const SamplingRule& rule, double uniform, const float* logits,
                                 float max, std::vector<Candidate>& candidates) const {
  // Candidates form a heap with the lightest in front; most logits fail the first comparison.
  const auto heavier = [](const Candidate& a, const Candidate& b) {
    return Heavier(a.weight, a.id, b.weight, b.id);
  };
  candidates.clear();
  const auto k = static_cast<size_t>(std::min(rule.top_k, vocab_size_));
  for (TokenId id = 0; id < vocab_size_; ++id) {
    if (candidates.size() == k && logits[id] <= candidates.front().weight) continue;
    if (candidates.size() == k) {
      std::pop_heap(candidates.begin(), candidates.end(), heavier);
      candidates.pop_back();
    }
    candidates.push_back({logits[id], id});
    std::push_heap(candidates.begin(), candidates.end(), heavier);
  }
  std::sort(candidates.begin(), candidates.end(), heavier);
  double sum = 0;
  size_t kept = 0;
  for (Candidate& candidate : candidates) {
    candidate.weight = std::exp(candidate.weight - max);
    if (kept > 0 && candidate.weight < rule.min_p) break;
    sum += candidate.weight;
    ++kept;
  }
  const double target = uniform * rule.top_p * sum;
  double cumulative = 0;
  size_t chosen = kept - 1;
  for (size_t i = 0; i < kept; ++i) {
    cumulative += candidates[i].weight;
    if (target <= cumulative) {
      chosen = i;
      break;
    }
  }
  SampledToken token{.id = candidates[chosen].id};
  token.log_prob = static_cast<float>(std::log(candidates[chosen].weight / sum));
  return token;
}

// r = u p S over the whole vocabulary; the first in descending order whose cumulative weight
// reaches r. The order is never made: a selection partitions around pivots and keeps the side in
// which the cumulative weight crosses r, O(V) on average.
SampledToken Sampler::SampleTopP(const SamplingRule& rule, double uniform, const float* logits,
                                 float max, std::vector<Candidate>& candidates) const {
  candidates.clear();
  double sum_all = 0;
  double sum = 0;
  for (TokenId id = 0; id < vocab_size_; ++id) {
    const float weight = std::exp(logits[id] - max);
    sum_all += weight;
    if (weight < rule.min_p || weight == 0.0F) continue;
    sum += weight;
    candidates.push_back({weight, id});
  }
  if (candidates.empty()) return {.id = ArgMax(logits, vocab_size_, max)};  // no finite logit
  double target = uniform * rule.top_p * sum;
  auto begin = candidates.begin();
  auto end = candidates.end();
  while (end - begin > 1) {
    const Candidate pivot = *(begin + (end - begin) / 2);
    const auto middle = std::partition(begin, end, [&pivot](const Candidate& c) {
      return Heavier(c.weight, c.id, pivot.weight, pivot.id);
    });
    double heavier_sum = 0;
    for (auto it = begin; it != middle; ++it) heavier_sum += it->weight;
    if (target <= heavier_sum && middle != begin) {
      end = middle;
      continue;
    }
    target -= heavier_sum;
    // The pivot is the heaviest of the rest: bring it to the front of that side.
    std::iter_swap(middle, std::find_if(middle, end,
                                        [&pivot](const Candidate& c) { return c.id == pivot.id; }));
    if (target <= pivot.weight || end - middle == 1) {
      begin = middle;
      end = middle + 1;
      continue;
    }
    target -= pivot.weight;
    begin = middle + 1;
  }
  SampledToken token{.id = begin->id};
  token.log_prob_all = static_cast<float>(std::log(begin->weight / sum_all));
  token.log_prob = token.log_prob_all;
  return token;
}

}  // namespace inflight::decoding
