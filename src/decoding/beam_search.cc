// SPDX-License-Identifier: Apache-2.0
#include "decoding/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "decoding/row.h"
#include "decoding/weights.h"

namespace inflight::decoding {
namespace {

bool IsBetter(const BeamCandidate& a, const BeamCandidate& b) {
  return a.cum_log_prob != b.cum_log_prob ? a.cum_log_prob > b.cum_log_prob : a.token < b.token;
}

// s of a logit of a row with those sums.
float Score(float cum, float logit, float max, double log_sum) {
  return static_cast<float>(cum + (static_cast<double>(logit) - max - log_sum));
}

}  // namespace

int BeamRule::num_candidates() const {
  return (1 + std::max(1, static_cast<int>(stop.end_ids.size()))) * width;
}

BeamRule MakeBeamRule(const Request& request, int num_prompt_tokens, int max_seq_len) {
  const SamplingParams& sampling = request.sampling;
  return {.width = sampling.beam_width,
          .num_returned = sampling.num_return_sequences.value_or(sampling.beam_width),
          .length_penalty = sampling.length_penalty,
          .early_stopping = sampling.early_stopping,
          .diversity_rate = sampling.beam_search_diversity_rate,
          .wants_log_probs = request.output.return_log_probs,
          .stop = {.end_ids = request.end_ids,
                   .stop_words = request.stop_words,
                   .num_prompt_tokens = num_prompt_tokens,
                   .max_seq_len = max_seq_len}};
}

float NormedScore(float cum_log_prob, int len, float length_penalty) {
  if (length_penalty == 0.0F || len <= 1) return cum_log_prob;
  return static_cast<float>(cum_log_prob / std::pow(static_cast<double>(len), length_penalty));
}

void BestContinuations(std::span<const float> logits, int beam, float cum, int count,
                       std::vector<BeamCandidate>* out) {
  const int vocab_size = static_cast<int>(logits.size());
  const float max = MaxOf(logits.data(), vocab_size);
  if (!IsFinite(max)) return;
  const double log_sum = std::log(SumOfExp(logits.data(), vocab_size, max));
  // A heap with the worst in front; most logits fail the first comparison.
  const size_t begin = out->size();
  const auto heap = [&] { return out->begin() + static_cast<ptrdiff_t>(begin); };
  float bound = kBanned;  // of the logits that are kept, once there are `count`
  for (TokenId token = 0; token < vocab_size; ++token) {
    const float logit = logits[static_cast<size_t>(token)];
    if (!(logit > bound)) continue;
    if (out->size() - begin == static_cast<size_t>(count)) {
      std::pop_heap(heap(), out->end(), IsBetter);
      out->pop_back();
    }
    out->push_back({.beam = beam, .token = token, .cum_log_prob = logit});
    std::push_heap(heap(), out->end(), IsBetter);
    if (out->size() - begin == static_cast<size_t>(count)) bound = (*out)[begin].cum_log_prob;
  }
  for (size_t i = begin; i < out->size(); ++i) {
    float& score = (*out)[i].cum_log_prob;
    score = Score(cum, score, max, log_sum);
  }
}

void BestContinuations(const BestLogits& best, int beam, float cum,
                       std::vector<BeamCandidate>* out) {
  const double log_sum = std::log(best.sum_of_exps);
  for (const BestLogits::Entry& entry : best.entries())
    out->push_back({.beam = beam,
                    .token = entry.id,
                    .cum_log_prob = Score(cum, entry.logit, best.max, log_sum)});
}

BeamSearch::BeamSearch(const BeamRule& rule, std::span<const TokenId> prompt)
    : rule_(rule), live_scores_{0.0F} {
  size_t longest = 0;
  for (const auto& word : rule.stop.stop_words) longest = std::max(longest, word.size());
  prompt_tail_.assign(prompt.end() - static_cast<ptrdiff_t>(std::min(longest, prompt.size())),
                      prompt.end());
}

void BeamSearch::Advance(std::vector<BeamCandidate>* candidates,
                         std::span<const std::shared_ptr<const BeamRow>> rows) {
  ++num_generated_;
  rows_ = rows;
  next_nodes_.clear();
  next_scores_.clear();
  parents_.clear();
  tokens_.clear();
  const auto rank = [this](const BeamCandidate& c) {
    return c.cum_log_prob + rule_.diversity_rate * static_cast<float>(c.beam);
  };
  const auto last =
      candidates->begin() + std::min<ptrdiff_t>(rule_.num_candidates(), std::ssize(*candidates));
  std::partial_sort(candidates->begin(), last, candidates->end(),
                    [&rank](const BeamCandidate& a, const BeamCandidate& b) {
                      if (rank(a) != rank(b)) return rank(a) > rank(b);
                      return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
                    });
  for (auto candidate = candidates->begin(); candidate != last; ++candidate) {
    if (std::ssize(next_nodes_) == rule_.width) break;
    const FinishReason reason = EndOf(*candidate);
    if (reason == FinishReason::kNotFinished) {
      AddLive(*candidate);
    } else if (candidate - candidates->begin() < rule_.width && !AddEnded(*candidate, reason)) {
      break;
    }
  }
  live_nodes_.swap(next_nodes_);
  live_scores_.swap(next_scores_);
  const bool is_alive = !live_nodes_.empty();
  parents_.resize(static_cast<size_t>(rule_.width), is_alive ? parents_[0] : 0);
  tokens_.resize(static_cast<size_t>(rule_.width), is_alive ? tokens_[0] : 0);
  is_met_ = !is_alive || RulesAreMet();
  is_done_ = is_met_ || rule_.stop.num_prompt_tokens + num_generated_ >= rule_.stop.max_seq_len;
}

FinishReason BeamSearch::EndOf(const BeamCandidate& candidate) const {
  const auto& end_ids = rule_.stop.end_ids;
  if (std::find(end_ids.begin(), end_ids.end(), candidate.token) != end_ids.end())
    return FinishReason::kEndId;
  const auto& words = rule_.stop.stop_words;
  const bool is_word = std::any_of(words.begin(), words.end(), [&](const auto& word) {
    return EndsWithStopWord(candidate, word);
  });
  return is_word ? FinishReason::kStopWords : FinishReason::kNotFinished;
}

bool BeamSearch::EndsWithStopWord(const BeamCandidate& candidate,
                                  const std::vector<TokenId>& word) const {
  if (word.back() != candidate.token) return false;
  int32_t node = NodeOf(candidate.beam);
  size_t in_prompt = prompt_tail_.size();
  for (size_t i = word.size() - 1; i-- > 0;) {
    if (node >= 0) {
      if (nodes_[static_cast<size_t>(node)].token != word[i]) return false;
      node = nodes_[static_cast<size_t>(node)].parent;
    } else if (in_prompt == 0 || prompt_tail_[--in_prompt] != word[i]) {
      return false;
    }
  }
  return true;
}

// False when the search is over (2a).
bool BeamSearch::AddEnded(const BeamCandidate& candidate, FinishReason reason) {
  Ended ended{.node = NodeOf(candidate.beam),
              .cum_log_prob = candidate.cum_log_prob,
              .normed = NormedScore(candidate.cum_log_prob, num_generated_, rule_.length_penalty),
              .reason = reason};
  const auto worst =
      std::min_element(ended_.begin(), ended_.end(),
                       [](const Ended& a, const Ended& b) { return a.normed < b.normed; });
  const bool is_full = std::ssize(ended_) == rule_.width;
  if (is_full && ended.normed < worst->normed) return rule_.early_stopping != 1;
  if (reason == FinishReason::kStopWords) {
    nodes_.push_back({candidate.token, ended.node, candidate.cum_log_prob, RowOf(candidate)});
    ended.node = static_cast<int32_t>(nodes_.size()) - 1;
  }
  if (is_full) {
    *worst = ended;
  } else {
    ended_.push_back(ended);
  }
  return true;
}

void BeamSearch::AddLive(const BeamCandidate& candidate) {
  nodes_.push_back(
      {candidate.token, NodeOf(candidate.beam), candidate.cum_log_prob, RowOf(candidate)});
  next_nodes_.push_back(static_cast<int32_t>(nodes_.size()) - 1);
  next_scores_.push_back(candidate.cum_log_prob);
  parents_.push_back(candidate.beam);
  tokens_.push_back(candidate.token);
}

std::shared_ptr<const BeamRow> BeamSearch::RowOf(const BeamCandidate& candidate) const {
  return rows_.empty() ? nullptr : rows_[static_cast<size_t>(candidate.beam)];
}

bool BeamSearch::RulesAreMet() const {
  if (std::ssize(ended_) < rule_.width) return false;
  if (rule_.early_stopping == 1) return true;
  const bool looks_ahead = rule_.early_stopping != 0 && rule_.length_penalty > 0;
  const int len =
      looks_ahead ? rule_.stop.max_seq_len - rule_.stop.num_prompt_tokens : num_generated_;
  const float best = *std::max_element(live_scores_.begin(), live_scores_.end());
  return WorstNormed() >= NormedScore(best, len, rule_.length_penalty);
}

float BeamSearch::WorstNormed() const {
  float worst = std::numeric_limits<float>::infinity();
  for (const Ended& ended : ended_) worst = std::min(worst, ended.normed);
  return worst;
}

std::vector<Beam> BeamSearch::Best(bool with_logits) const {
  std::vector<Ended> all = ended_;
  if (!is_met_ && num_generated_ > 0) {
    const FinishReason reason = is_done_ ? FinishReason::kLength : FinishReason::kNotFinished;
    for (size_t j = 0; j < live_nodes_.size(); ++j) {
      all.push_back({.node = live_nodes_[j],
                     .cum_log_prob = live_scores_[j],
                     .normed = NormedScore(live_scores_[j], num_generated_, rule_.length_penalty),
                     .reason = reason});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Ended& a, const Ended& b) { return a.normed > b.normed; });
  std::vector<Beam> beams;
  const size_t num_returned = std::min(all.size(), static_cast<size_t>(rule_.num_returned));
  for (size_t i = 0; i < num_returned; ++i) beams.push_back(MakeBeam(all[i], with_logits));
  return beams;
}

Beam BeamSearch::MakeBeam(const Ended& ended, bool with_logits) const {
  Beam beam{
      .cum_log_prob = ended.cum_log_prob, .score = ended.normed, .finish_reason = ended.reason};
  std::vector<const Node*> path;
  for (int32_t i = ended.node; i >= 0; i = path.back()->parent) {
    path.push_back(&nodes_[static_cast<size_t>(i)]);
  }
  std::reverse(path.begin(), path.end());
  float before = 0;
  for (const Node* node : path) {
    beam.output_ids.push_back(node->token);
    if (rule_.wants_log_probs) beam.output_log_probs.push_back(node->cum_log_prob - before);
    before = node->cum_log_prob;
    if (node->row == nullptr) continue;
    const BeamRow& row = *node->row;
    beam.top_log_probs.insert(beam.top_log_probs.end(), row.top_log_probs.begin(),
                              row.top_log_probs.end());
    if (!with_logits || row.logits.empty()) continue;
    LogitsRows& logits = beam.generation_logits;
    logits.vocab_size = static_cast<int>(row.logits.size());
    logits.values.reserve(path.size() * row.logits.size());
    ++logits.num_rows;
    logits.values.insert(logits.values.end(), row.logits.begin(), row.logits.end());
  }
  return beam;
}

}  // namespace inflight::decoding
