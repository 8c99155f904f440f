// SPDX-License-Identifier: Apache-2.0
// The step loop's side of a profile: notes where each phase of a turn ended, and keeps the turn if
// somebody still asks for it when it is over.
//
//   kOff -- Begin --> kOn <-- turn kept --> kWriting
//   kOff <--- End --- kOn
//
// Who asks waits for kWriting to pass, which is the copy of one turn; the loop waits for nobody.
//
// Threads: Begin and End are for any thread, the rest is the step loop's alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "inflight/step_profile.h"

namespace inflight::executor {

class TurnRecorder : public StepProfiler {
 public:
  // `clock` outlives the step loop.
  TurnRecorder(const Clock& clock, bool computes_in_launch)
      : clock_(clock), computes_in_launch_(computes_in_launch) {}

  bool Begin(int64_t begin_ns, size_t max_turns) override;
  StepProfile End() override;

  void BeginTurn(int64_t now_ns) {
    is_on_ = state_.load(std::memory_order_relaxed) != State::kOff;
    if (is_on_) turn_ = {.begin_ns = now_ns};
  }
  bool is_on() const { return is_on_; }  // this turn is recorded
  TurnProfile& turn() { return turn_; }  // while it is
  // The phase ends here, or at a time that was read for something else.
  void Mark(TurnPhase phase) {
    if (is_on_) Add(phase, clock_.NowNs());
  }
  void Mark(TurnPhase phase, int64_t end_ns) {
    if (is_on_) Add(phase, end_ns);
  }
  void Keep();  // the turn, at its end

 private:
  enum class State : uint8_t { kOff, kOn, kWriting };

  void Add(TurnPhase phase, int64_t end_ns);

  const Clock& clock_;
  const bool computes_in_launch_;

  bool is_on_ = false;
  TurnProfile turn_;

  std::mutex mutex_;  // between those who ask
  std::atomic<State> state_{State::kOff};
  // Theirs in kOff, the step loop's in kWriting.
  int64_t begin_ns_ = 0;
  std::vector<TurnProfile> turns_;  // [max_turns]
  size_t num_kept_ = 0;
  int64_t num_lost_ = 0;
};

}  // namespace inflight::executor
