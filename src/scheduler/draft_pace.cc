// SPDX-License-Identifier: Apache-2.0
#include "scheduler/draft_pace.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace inflight::scheduler {
namespace {

constexpr double kDecay = 0.98;        // of sums over steps, at each step
constexpr double kNewestOfOne = 0.2;   // weight of a judged draft in its sequence's share
constexpr double kNewestOfAll = 0.02;  // and in that of all

// As long as steps had about equally many tokens, nothing new is known of what one costs. One token
// more in one of kTryEvery is enough.
constexpr double kLeastVariance = 0.02;
constexpr double kLowestPrice = 0.02, kHighestPrice = 2;

// A new sequence may be another kind of text than those before it.
constexpr double kLeastAtStart = 0.3;

constexpr double kLeastShare = 0.02;  // of all sequences' drafts, to compare one's with

constexpr int kLongestSkip = 256;  // rows between tries that fail

}  // namespace

void DraftPace::Observe(int64_t step_ns, int num_tokens, int num_yielded) {
  const auto ns = static_cast<double>(step_ns);
  const auto tokens = static_cast<double>(num_tokens);
  for (double* sum : {&steps_, &tokens_, &squares_, &ns_, &products_, &yielded_}) *sum *= kDecay;
  steps_ += 1;
  tokens_ += tokens;
  squares_ += tokens * tokens;
  ns_ += ns;
  products_ += tokens * ns;
  yielded_ += num_yielded;
  SetPrice();
}

// The slope of the line of least squares through (tokens, time), times what a nanosecond yields.
void DraftPace::SetPrice() {
  if (ns_ <= 0) return;
  const double variance = squares_ / steps_ - (tokens_ / steps_) * (tokens_ / steps_);
  if (variance < kLeastVariance) return;
  const double cost = (products_ / steps_ - (tokens_ / steps_) * (ns_ / steps_)) / variance;
  price_ = std::clamp(cost * yielded_ / ns_, kLowestPrice, kHighestPrice);
}

double DraftPace::Accepted(const DraftRecord& record) const {
  return record.has_any ? record.accepted : std::max(accepted_, kLeastAtStart);
}

void DraftPace::Note(DraftRecord* record, int num_drafted, int num_accepted,
                     uint64_t accepted_nodes) {
  if (num_drafted == 0) {
    ++record->num_skipped;
    return;
  }
  record->accepted = Accepted(*record);
  record->has_any = true;
  const bool is_rejected = num_accepted < num_drafted;
  for (int i = 0; i < num_accepted + (is_rejected ? 1 : 0); ++i) {
    const double judged = i < num_accepted ? 1 : 0;
    record->accepted += kNewestOfOne * (judged - record->accepted);
    accepted_ += kNewestOfAll * (judged - accepted_);
  }
  for (size_t i = 0; i < chances_.size() && std::cmp_less(i, num_drafted); ++i) {
    const double judged = (accepted_nodes >> i & 1) != 0 ? 1 : 0;
    chances_[i] += kNewestOfAll * (judged - chances_[i]);
  }
  record->num_skipped = 0;
  record->num_to_skip =
      num_accepted > 0 ? DraftRecord::kFirstSkip : std::min(record->num_to_skip * 2, kLongestSkip);
}

int DraftPace::ChainLength(double accepted) const {
  const double limit = price();
  int length = 0;
  for (double all = accepted; length < max_ && all > limit; all *= accepted) ++length;
  return length;
}

int DraftPace::TreeSize(double accepted) const {
  const double share = accepted / std::max(accepted_, kLeastShare);
  const int num_nodes = std::min(max_, static_cast<int>(chances_.size()));
  double gain = 0;
  double most = 0;
  int size = 0;
  for (int i = 0; i < num_nodes; ++i) {
    gain += std::min(1.0, chances_[static_cast<size_t>(i)] * share) - price();
    if (gain > most) {
      most = gain;
      size = i + 1;
    }
  }
  return size;
}

int DraftPace::Length(const DraftRecord& record) const {
  if (max_ == 0) return 0;
  const double accepted = Accepted(record);
  const int length = chances_.empty() ? ChainLength(accepted) : TreeSize(accepted);
  const bool tries = record.num_skipped >= record.num_to_skip && num_steps_ % kTryEvery == 0;
  return length == 0 && tries ? 1 : length;
}

}  // namespace inflight::scheduler
