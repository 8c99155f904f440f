// SPDX-License-Identifier: Apache-2.0
#include "executor/turn_recorder.h"

#include <thread>
#include <utility>

namespace inflight::executor {

bool TurnRecorder::Begin(int64_t begin_ns, size_t max_turns) {
  const std::lock_guard lock(mutex_);
  if (state_.load(std::memory_order_acquire) != State::kOff) return false;
  turns_.assign(max_turns, TurnProfile());
  begin_ns_ = begin_ns;
  num_kept_ = 0;
  num_lost_ = 0;
  state_.store(State::kOn, std::memory_order_release);
  return true;
}

StepProfile TurnRecorder::End() {
  const std::lock_guard lock(mutex_);
  State seen = State::kOn;
  while (!state_.compare_exchange_weak(seen, State::kOff, std::memory_order_acquire)) {
    if (seen == State::kOff) return {};
    seen = State::kOn;
    std::this_thread::yield();
  }
  turns_.resize(num_kept_);
  return {.turns = std::exchange(turns_, {}),
          .num_lost_turns = num_lost_,
          .computes_in_launch = computes_in_launch_};
}

void TurnRecorder::Add(TurnPhase phase, int64_t end_ns) {
  if (turn_.num_phases == TurnProfile::kMaxPhases) return;
  const auto at = static_cast<size_t>(turn_.num_phases++);
  turn_.phases[at] = phase;
  turn_.ends_ns[at] = end_ns;
}

void TurnRecorder::Keep() {
  State seen = State::kOn;
  if (!state_.compare_exchange_strong(seen, State::kWriting, std::memory_order_acquire)) return;
  // One that began under the profile before this one is neither's.
  if (turn_.begin_ns >= begin_ns_) {
    if (num_kept_ < turns_.size())
      turns_[num_kept_++] = turn_;
    else
      ++num_lost_;
  }
  state_.store(State::kOn, std::memory_order_release);
}

}  // namespace inflight::executor
