// SPDX-License-Identifier: Apache-2.0
#include "scheduler/prefill_pace.h"

#include <algorithm>

namespace inflight::scheduler {
namespace {

constexpr double kNewest = 0.25;  // weight of the newest measurement

constexpr double kHidden = 0.01;  // of the least time, that hidden tokens count as

// Steps of fewer prompt tokens than this say little about the cost of one: their weight shrinks.
constexpr double kFullWeightTokens = 64;

}  // namespace

void PrefillPace::Observe(int64_t step_ns, int num_decode_rows, int num_prefill_tokens) {
  const auto ns = static_cast<double>(std::max<int64_t>(step_ns - least_ns_, 0));
  if (num_prefill_tokens == 0) {
    if (num_decode_rows > 0) base_ns_ += (base_ns_ == 0 ? 1.0 : kNewest) * (ns - base_ns_);
    return;
  }
  const auto tokens = static_cast<double>(num_prefill_tokens);
  // A mixed step costs its prompt tokens at least a tenth, should `base` be out of date; one that
  // ends with the least time has hidden them behind that.
  const double hidden = kHidden * static_cast<double>(least_ns_);
  const double cost =
      std::max({ns - (num_decode_rows > 0 ? base_ns_ : 0), ns / 10, hidden}) / tokens;
  const double weight = token_ns_ == 0 ? 1.0 : kNewest * std::min(1.0, tokens / kFullWeightTokens);
  token_ns_ += weight * (cost - token_ns_);
}

PrefillShare PrefillPace::share() const {
  const auto goal = static_cast<double>(goal_ns_);
  return {.beside_decode = TokensIn(goal - base_ns_), .alone = TokensIn(goal)};
}

// The scheduler stretches a share below one block to a block.
int PrefillPace::TokensIn(double ns) const {
  if (goal_ns_ <= 0) return max_;
  if (token_ns_ == 0) return 1;
  return static_cast<int>(std::clamp(ns / token_ns_, 1.0, static_cast<double>(max_)));
}

}  // namespace inflight::scheduler
