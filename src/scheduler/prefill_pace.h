// SPDX-License-Identifier: Apache-2.0
// Turns the step-time goal into prompt tokens by what steps were measured to cost:
//
//   step time = base + cost * prompt tokens
//
// `base` is the time of steps without prompt tokens, `cost` what a prompt token adds to it. Before
// anything is known, a step takes one block of the prompt.
//
// Where every step takes `least_ns`, whatever is in it, times and goal count from there on: short
// chunks would only pay that more often.
#pragma once

#include <cstdint>

#include "scheduler/scheduler.h"

namespace inflight::scheduler {

class PrefillPace {
 public:
  // goal_ns <= 0: no goal, the share is max_num_tokens.
  PrefillPace(int64_t goal_ns, int max_num_tokens, int64_t least_ns = 0)
      : goal_ns_(goal_ns), max_(max_num_tokens), least_ns_(least_ns) {}

  void Observe(int64_t step_ns, int num_decode_rows, int num_prefill_tokens);
  PrefillShare share() const;

 private:
  int TokensIn(double ns) const;

  int64_t goal_ns_;
  int max_;
  int64_t least_ns_;
  double base_ns_ = 0;   // 0: no step without prompt tokens yet
  double token_ns_ = 0;  // 0: no step with prompt tokens yet
};

}  // namespace inflight::scheduler
