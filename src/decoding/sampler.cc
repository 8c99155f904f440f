// SPDX-License-Identifier: Apache-2.0
#include "decoding/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <thread>

#include "base/check.h"
#include "decoding/philox.h"
#include "decoding/weights.h"

namespace inflight::decoding {
namespace {

// Beyond this distance top-p first looks for nothing: most draws end before.
constexpr float kNear = 8.0F;
constexpr int kBlock =
    256;  // elements that loops over a row take at a time, so that they vectorise

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
  if (max == -std::numeric_limits<float>::infinity()) return 0;
  return static_cast<TokenId>(std::find(x, x + n, max) - x);
}

// sum(exp(x - max))
double SumOfExp(const float* x, int n, float max) {
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

struct Masses {
  uint64_t all = 0;
  uint64_t near = 0;  // of logits nearer than kNear
};

// Sums of the weights not below `min_weight`.
Masses SumWeights(const float* x, int n, float max, int32_t min_weight) {
  Masses masses;
  std::array<int32_t, kBlock> all;
  std::array<int32_t, kBlock> near;
  for (int begin = 0; begin < n; begin += kBlock) {
    const int size = std::min(kBlock, n - begin);
    for (int i = 0; i < size; ++i) {
      const float distance = Distance(max, x[begin + i]);
      const int32_t weight = Weight(distance);
      all[i] = weight < min_weight ? 0 : weight;
      near[i] = distance < kNear ? all[i] : 0;
    }
    for (int i = 0; i < size; ++i) masses.all += static_cast<uint64_t>(all[i]);
    for (int i = 0; i < size; ++i) masses.near += static_cast<uint64_t>(near[i]);
  }
  return masses;
}

// log(exp(-distance) / sum)
float LogProb(float distance, double sum) {
  return static_cast<float>(-static_cast<double>(distance) - std::log(sum));
}

bool Heavier(float distance_a, TokenId id_a, float distance_b, TokenId id_b) {
  return distance_a < distance_b || (distance_a == distance_b && id_a < id_b);
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
  for (const TokenId token : slot.distinct)
    logits[token] =
        Penalized(logits[token], slot.counts[static_cast<size_t>(token)], rule.repetition_penalty,
                  rule.presence_penalty, rule.frequency_penalty);
}

SampledToken Sampler::Sample(int slot_id, int64_t position, float* logits) {
  const Slot& slot = slots_[static_cast<size_t>(slot_id)];
  const SamplingRule& rule = slot.rule;
  if (rule.temperature != 1.0F) {
    const float scale = TemperatureScale(rule.temperature);
    for (int i = 0; i < vocab_size_; ++i) logits[i] *= scale;
  }
  if (rule.has_penalties()) ApplyPenalties(slot, logits);
  const float max = MaxOf(logits, vocab_size_);
  if (rule.greedy || !IsFinite(max)) {
    SampledToken token{.id = ArgMax(logits, vocab_size_, max)};
    if (rule.wants_log_probs && IsFinite(max)) {
      token.log_prob_all = LogProb(0, SumOfExp(logits, vocab_size_, max));
      token.log_prob = token.log_prob_all;
    }
    return token;
  }
  Scratch scratch(lanes_);
  const double uniform = UniformAt(rule.seed, static_cast<uint64_t>(position));
  SampledToken token = rule.top_k > 0
                           ? SampleTopK(rule, uniform, logits, max, scratch.candidates())
                           : SampleTopP(rule, uniform, logits, max, scratch.candidates());
  if (!rule.wants_log_probs) return {.id = token.id};
  token.log_prob_all = LogProb(Distance(max, logits[token.id]), SumOfExp(logits, vocab_size_, max));
  if (rule.top_k == 0 || !rule.normalize_log_probs) token.log_prob = token.log_prob_all;
  return token;
}

// r = u p S over the k heaviest, S their sum; the first whose cumulative weight reaches r
// (spec/engine.md 4.8).
SampledToken Sampler::SampleTopK(const SamplingRule& rule, double uniform, const float* logits,
                                 float max, std::vector<Candidate>& candidates) const {
  // Candidates form a heap with the lightest in front; most logits fail the first comparison.
  const auto heavier = [](const Candidate& a, const Candidate& b) {
    return Heavier(a.distance, a.id, b.distance, b.id);
  };
  candidates.clear();
  const auto k = static_cast<size_t>(std::min(rule.top_k, vocab_size_));
  for (TokenId id = 0; id < vocab_size_; ++id) {
    const float distance = Distance(max, logits[id]);
    if (candidates.size() == k) {
      if (distance >= candidates.front().distance) continue;
      std::pop_heap(candidates.begin(), candidates.end(), heavier);
      candidates.pop_back();
    }
    candidates.push_back({.distance = distance, .id = id});
    std::push_heap(candidates.begin(), candidates.end(), heavier);
  }
  std::sort(candidates.begin(), candidates.end(), heavier);
  const int32_t min_weight = InUnits(rule.min_p);
  uint64_t sum = 0;
  size_t kept = 0;
  for (Candidate& candidate : candidates) {
    candidate.weight = Weight(candidate.distance);
    if (kept > 0 && candidate.weight < min_weight) break;
    sum += static_cast<uint64_t>(candidate.weight);
    ++kept;
  }
  const uint64_t target = TargetWeight(uniform, rule.top_p, sum);
  size_t chosen = 0;
  for (uint64_t cumulative = static_cast<uint64_t>(candidates[0].weight); cumulative < target;)
    cumulative += static_cast<uint64_t>(candidates[++chosen].weight);
  return {.id = candidates[chosen].id,
          .log_prob = LogProb(candidates[chosen].distance,
                              static_cast<double>(sum) / static_cast<double>(kUnitWeight))};
}

// r = u p S over the whole vocabulary; the first in descending order whose cumulative weight
// reaches r. The order is never made: a selection partitions around pivots and keeps the side in
// which the cumulative weight crosses r, O(V) on average.
SampledToken Sampler::SampleTopP(const SamplingRule& rule, double uniform, const float* logits,
                                 float max, std::vector<Candidate>& candidates) const {
  const int32_t min_weight = std::max(1, InUnits(rule.min_p));
  const Masses masses = SumWeights(logits, vocab_size_, max, min_weight);
  uint64_t target = TargetWeight(uniform, rule.top_p, masses.all);
  const float limit = target <= masses.near ? kNear : kWeightless;
  candidates.clear();
  std::array<float, kBlock> distances;
  std::array<int32_t, kBlock> weights;
  for (TokenId block = 0; block < vocab_size_; block += kBlock) {
    const int size = std::min(kBlock, vocab_size_ - block);
    int num_within = 0;
    for (int i = 0; i < size; ++i) {
      distances[i] = Distance(max, logits[block + i]);
      num_within += distances[i] < limit ? 1 : 0;
    }
    if (num_within == 0) continue;
    for (int i = 0; i < size; ++i) weights[i] = Weight(distances[i]);
    for (int i = 0; i < size; ++i)
      if (distances[i] < limit && weights[i] >= min_weight)
        candidates.push_back({distances[i], weights[i], block + i});
  }
  auto begin = candidates.begin();
  auto end = candidates.end();
  while (end - begin > 1) {
    const Candidate pivot = *(begin + (end - begin) / 2);
    const auto middle = std::partition(begin, end, [&pivot](const Candidate& c) {
      return Heavier(c.distance, c.id, pivot.distance, pivot.id);
    });
    uint64_t heavier_sum = 0;
    for (auto it = begin; it != middle; ++it) heavier_sum += static_cast<uint64_t>(it->weight);
    if (target <= heavier_sum) {
      end = middle;
      continue;
    }
    target -= heavier_sum;
    // The pivot is the heaviest of the rest: bring it to the front of that side.
    std::iter_swap(middle, std::find_if(middle, end,
                                        [&pivot](const Candidate& c) { return c.id == pivot.id; }));
    if (target <= static_cast<uint64_t>(pivot.weight)) {
      begin = middle;
      break;
    }
    target -= static_cast<uint64_t>(pivot.weight);
    begin = middle + 1;
  }
  return {.id = begin->id};
}

}  // namespace inflight::decoding
