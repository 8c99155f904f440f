// SPDX-License-Identifier: Apache-2.0
#include "decoding/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <thread>

#include "base/check.h"
#include "decoding/bans.h"
#include "decoding/draft_acceptance.h"
#include "decoding/philox.h"
#include "decoding/row.h"
#include "decoding/weights.h"

namespace inflight::decoding {
namespace {

// Beyond this distance top-p first looks for nothing: most draws end before.
constexpr float kNear = 8.0F;

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

// The order of candidates, heaviest first.
constexpr auto kHeavier = [](const auto& a, const auto& b) {
  return Heavier(a.distance, a.id, b.distance, b.id);
};

template <typename Iterator>
uint64_t SumOfWeights(Iterator begin, Iterator end) {
  uint64_t sum = 0;
  for (; begin != end; ++begin) sum += static_cast<uint64_t>(begin->weight);
  return sum;
}

// The first in an order whose cumulative weight reaches `target`, at most the weight of all; in
// front of it are then those before it. The order is never made: a selection partitions around
// pivots and keeps the side in which the cumulative weight crosses the target, O(n) on average.
template <typename Iterator, typename Order>
Iterator Reach(Iterator begin, Iterator end, uint64_t target, Order is_before) {
  while (end - begin > 1) {
    const auto pivot = *(begin + (end - begin) / 2);
    const Iterator middle =
        std::partition(begin, end, [&](const auto& c) { return is_before(c, pivot); });
    const uint64_t before = SumOfWeights(begin, middle);
    if (target <= before) {
      end = middle;
      continue;
    }
    target -= before;
    // The pivot is the first of the rest: bring it to the front of that side.
    std::iter_swap(middle,
                   std::find_if(middle, end, [&](const auto& c) { return c.id == pivot.id; }));
    if (target <= static_cast<uint64_t>(pivot.weight)) return middle;
    target -= static_cast<uint64_t>(pivot.weight);
    begin = middle + 1;
  }
  return begin;
}

}  // namespace

struct Sampler::Slot {
  SamplingRule rule;
  float top_p = 1.0F;  // of the next draw
  // [vocab_size] occurrences; sized by the first sequence with penalties
  std::vector<int32_t> counts;
  std::vector<TokenId> distinct;  // tokens whose count is not zero
  std::unique_ptr<GuidedSlot> guide;
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
  slots_[static_cast<size_t>(slot_id)].rule = rule;
  std::unique_ptr<GuidedSlot> guide;
  if (rule.guide != nullptr)
    guide = std::make_unique<GuidedSlot>(
        *rule.guide, rule.end_ids, tokens.subspan(static_cast<size_t>(rule.num_prompt_tokens)));
  Restart(slot_id, tokens, max_seq_len, std::move(guide));
}

void Sampler::Release(int slot_id) {
  Slot& slot = slots_[static_cast<size_t>(slot_id)];
  slot.guide.reset();
  slot.rule.guide.reset();
}

const GuidedSlot* Sampler::guide(int slot_id) const {
  return slots_[static_cast<size_t>(slot_id)].guide.get();
}

std::unique_ptr<GuidedSlot> Sampler::CloneGuide(int slot_id) const {
  const GuidedSlot* const of_slot = guide(slot_id);
  return of_slot == nullptr ? nullptr : of_slot->Clone();
}

void Sampler::Restart(int slot_id, std::span<const TokenId> tokens, int max_seq_len,
                      std::unique_ptr<GuidedSlot> guide) {
  Slot& slot = slots_[static_cast<size_t>(slot_id)];
  const SamplingRule& rule = slot.rule;
  slot.guide = std::move(guide);
  for (const TokenId token : slot.distinct) slot.counts[static_cast<size_t>(token)] = 0;
  slot.distinct.clear();
  slot.top_p = TopPAfter(rule, tokens);
  if (!rule.has_penalties()) return;
  slot.counts.resize(static_cast<size_t>(vocab_size_));
  slot.distinct.reserve(static_cast<size_t>(std::min(vocab_size_, max_seq_len)));
  const auto num_uncounted = static_cast<size_t>(rule.num_uncounted_tokens);
  for (size_t i = num_uncounted; i < tokens.size(); ++i) Count(slot, tokens[i]);
}

void Sampler::Append(int slot_id, TokenId token) {
  Slot& slot = slots_[static_cast<size_t>(slot_id)];
  if (slot.rule.has_penalties()) Count(slot, token);
  if (slot.rule.has_top_p_decay()) slot.top_p = TopPAfter(slot.rule, slot.top_p, token);
  if (slot.guide != nullptr) slot.guide->Accept(token);
}

void Sampler::Count(Slot& slot, TokenId token) const {
  if (token >= vocab_size_) return;
  if (slot.counts[static_cast<size_t>(token)]++ == 0) slot.distinct.push_back(token);
}

// Everything that changes logits, in the order of docs/reference/decoding.md.
GuideVerdict Sampler::Edit(const Slot& slot, GuidedSlot* guide, std::span<const TokenId> tokens,
                           float* logits) const {
  const SamplingRule& rule = slot.rule;
  if (rule.bias != nullptr) {
    const float* const bias = rule.bias->data();
    for (int i = 0; i < vocab_size_; ++i) logits[i] += bias[i];
  }
  if (rule.temperature != 1.0F) {
    const float scale = TemperatureScale(rule.temperature);
    for (int i = 0; i < vocab_size_; ++i) logits[i] *= scale;
  }
  if (rule.has_penalties()) ApplyPenalties(slot, logits);
  const std::span<float> row(logits, static_cast<size_t>(vocab_size_));
  if (rule.has_bans()) Ban(rule, tokens, row);
  if (guide == nullptr) return GuideVerdict::kTokens;
  const GuideVerdict verdict = guide->Ban(row);
  // What the guide leaves may be banned otherwise.
  const bool has_any = verdict != GuideVerdict::kTokens || MaxOf(logits, vocab_size_) != kBanned;
  return has_any ? verdict : GuideVerdict::kNone;
}

void Sampler::ApplyPenalties(const Slot& slot, float* logits) const {
  const SamplingRule& rule = slot.rule;
  for (const TokenId token : slot.distinct)
    logits[token] =
        Penalized(logits[token], slot.counts[static_cast<size_t>(token)], rule.repetition_penalty,
                  rule.presence_penalty, rule.frequency_penalty);
}

void Sampler::Process(int slot_id, std::span<const TokenId> tokens, float* logits) {
  const Slot& slot = slots_[static_cast<size_t>(slot_id)];
  Edit(slot, slot.guide.get(), tokens, logits);
}

SampledToken Sampler::Sample(int slot_id, std::span<const TokenId> tokens, float* logits) {
  return SampleDraft(slot_id, tokens, logits, slots_[static_cast<size_t>(slot_id)].guide.get());
}

SampledToken Sampler::SampleDraft(int slot_id, std::span<const TokenId> tokens, float* logits,
                                  GuidedSlot* guide) {
  const Slot& slot = slots_[static_cast<size_t>(slot_id)];
  const GuideVerdict verdict = Edit(slot, guide, tokens, logits);
  if (verdict != GuideVerdict::kTokens) return {.verdict = verdict};
  return Draw(slot, UniformAt(slot.rule.seed, tokens.size()), logits);
}

SampledToken Sampler::Draw(const Slot& slot, double uniform, const float* logits) {
  const SamplingRule& rule = slot.rule;
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
  SampledToken token = rule.top_k > 0
                           ? SampleTopK(rule, uniform, logits, max, scratch.candidates())
                           : SampleTopP(slot, uniform, logits, max, scratch.candidates());
  if (!rule.wants_log_probs) return {.id = token.id};
  token.log_prob_all = LogProb(Distance(max, logits[token.id]), SumOfExp(logits, vocab_size_, max));
  if (rule.top_k == 0 || !rule.normalize_log_probs) token.log_prob = token.log_prob_all;
  return token;
}

SampledToken Sampler::Verify(int slot_id, std::span<const TokenId> tokens, float* logits,
                             const DraftToken& draft) {
  const Slot& slot = slots_[static_cast<size_t>(slot_id)];
  const SamplingRule& rule = slot.rule;
  GuidedSlot* const guide = slot.guide.get();
  const size_t position = tokens.size();
  if (const GuideVerdict verdict = Edit(slot, guide, tokens, logits);
      verdict != GuideVerdict::kTokens)
    return {.verdict = verdict};
  const double replace_at = UniformAt(rule.seed, position, DrawUse::kReplacement);
  if (logits[draft.id] == kBanned) return Draw(slot, replace_at, logits);
  std::vector<float> draft_logits(draft.logits.begin(), draft.logits.end());
  Edit(slot, guide, tokens, draft_logits.data());
  const std::span<const float> row(logits, static_cast<size_t>(vocab_size_));
  const Distribution target = DistributionOf(rule, slot.top_p, row);
  const double bar = draft.acceptance_threshold
                         ? *draft.acceptance_threshold
                         : UniformAt(rule.seed, position, DrawUse::kAcceptance);
  SampledToken token{.id = AcceptOrReplace(target, DistributionOf(rule, slot.top_p, draft_logits),
                                           draft.id, bar, replace_at)};
  const float max = MaxOf(logits, vocab_size_);
  if (!rule.wants_log_probs || !IsFinite(max)) return token;
  const float distance = Distance(max, logits[token.id]);
  token.log_prob_all = LogProb(distance, SumOfExp(logits, vocab_size_, max));
  const bool is_normalised = !rule.greedy && rule.top_k > 0 && rule.normalize_log_probs;
  token.log_prob = is_normalised ? LogProb(distance, target.kept) : token.log_prob_all;
  return token;
}

// r = u p S over the k heaviest, S their sum; the first whose cumulative weight reaches r
// (docs/reference/decoding.md, "Top-k").
SampledToken Sampler::SampleTopK(const SamplingRule& rule, double uniform, const float* logits,
                                 float max, std::vector<Candidate>& candidates) const {
  // Candidates form a heap with the lightest in front; most logits fail the first comparison.
  candidates.clear();
  const auto k = static_cast<size_t>(std::min(rule.top_k, vocab_size_));
  for (TokenId id = 0; id < vocab_size_; ++id) {
    const float distance = Distance(max, logits[id]);
    if (candidates.size() == k) {
      if (distance >= candidates.front().distance) continue;
      std::pop_heap(candidates.begin(), candidates.end(), kHeavier);
      candidates.pop_back();
    }
    candidates.push_back({.distance = distance, .id = id});
    std::push_heap(candidates.begin(), candidates.end(), kHeavier);
  }
  std::sort(candidates.begin(), candidates.end(), kHeavier);
  const int32_t min_weight = InUnits(rule.min_p);
  uint64_t sum = 0;
  size_t kept = 0;
  for (Candidate& candidate : candidates) {
    candidate.weight = Weight(candidate.distance);
    if (kept > 0 && candidate.weight < min_weight) break;
    sum += static_cast<uint64_t>(candidate.weight);
    ++kept;
  }
  Candidate chosen;
  if (rule.typical_p < 1.0F) {
    candidates.resize(kept);
    chosen = DrawTypical(rule.top_p, rule.typical_p, uniform, candidates);
  } else {
    const uint64_t target = TargetWeight(uniform, rule.top_p, sum);
    auto reached = candidates.begin();
    for (uint64_t cumulative = static_cast<uint64_t>(reached->weight); cumulative < target;)
      cumulative += static_cast<uint64_t>((++reached)->weight);
    chosen = *reached;
  }
  return {.id = chosen.id,
          .log_prob = LogProb(chosen.distance,
                              static_cast<double>(sum) / static_cast<double>(kUnitWeight))};
}

// r = u p S over the whole vocabulary; the first in descending order whose cumulative weight
// reaches r.
SampledToken Sampler::SampleTopP(const Slot& slot, double uniform, const float* logits, float max,
                                 std::vector<Candidate>& candidates) const {
  const int32_t min_weight = std::max(1, InUnits(slot.rule.min_p));
  const Masses masses = SumWeights(logits, vocab_size_, max, min_weight);
  const bool is_typical = slot.rule.typical_p < 1.0F;
  const uint64_t target = is_typical ? masses.all  // of all tokens
                                     : TargetWeight(uniform, slot.top_p, masses.all);
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
  if (is_typical) {
    return {.id = DrawTypical(slot.top_p, slot.rule.typical_p, uniform, candidates).id};
  }
  return {.id = Reach(candidates.begin(), candidates.end(), target, kHeavier)->id};
}

// Top-p and typical-p each keep the whole tokens that reach their sum, as transformers' warpers do
// (generation/logits_process.py, in the order of generation/utils.py).
Sampler::Candidate Sampler::DrawTypical(float top_p, float typical_p, double uniform,
                                        std::vector<Candidate>& candidates) {
  const auto begin = candidates.begin();
  auto end = candidates.end();
  uint64_t sum = SumOfWeights(begin, end);
  if (top_p < 1.0F) {
    end = Reach(begin, end, TargetWeight(1.0, top_p, sum), kHeavier) + 1;
    sum = SumOfWeights(begin, end);
  }
  uint64_t weighed_distances = 0;
  for (auto it = begin; it != end; ++it) {
    weighed_distances += WeighedDistance(it->weight, it->distance);
  }
  const float mean = MeanDistance(weighed_distances, sum);
  const auto more_typical = [mean](const Candidate& a, const Candidate& b) {
    return Heavier(Atypicality(a.distance, mean), a.id, Atypicality(b.distance, mean), b.id);
  };
  const auto last = Reach(begin, end, TargetWeight(1.0, typical_p, sum), more_typical);
  const float bound = Atypicality(last->distance, mean);
  end = std::partition(begin, end, [mean, bound](const Candidate& c) {
    return Atypicality(c.distance, mean) <= bound;
  });
  return *Reach(begin, end, TargetWeight(uniform, 1.0F, SumOfWeights(begin, end)), kHeavier);
}

}  // namespace inflight::decoding
