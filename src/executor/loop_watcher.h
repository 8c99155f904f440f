// SPDX-License-Identifier: Apache-2.0
// Sees all that makes a step loop do what it does: the time that it reads, requests, cancels and
// holds as it takes them, whether a step was ready. Of the same model, whoever gives a loop the
// same again has the same plans and outputs; so that this can be compared, it is told of those too.
//
// Threads: the step loop's alone. Nothing here may block.
#pragma once

#include <cstdint>
#include <span>

#include "executor/sequence.h"
#include "scheduler/step_plan.h"

namespace inflight::executor {

class LoopWatcher {
 public:
  virtual ~LoopWatcher() = default;

  virtual void OnTime(int64_t now_ns) = 0;  // each reading of a turn, the first of all it tells
  virtual void OnArrival(const ActiveRequest& request) = 0;
  virtual void OnCancel(RequestId id) = 0;              // of a request that is there
  virtual void OnHold(RequestId id, bool is_held) = 0;  // of one that is there, a change
  virtual void OnCancelAll() = 0;
  // `rows` [plan.num_rows] are whose they are; paused: sequences that wait to resume.
  virtual void OnLaunch(const scheduler::StepPlan& plan,
                        std::span<scheduler::SequenceState* const> rows, int num_paused) = 0;
  // The sequence's last event; its request is whole yet.
  virtual void OnEnd(const Sequence& sequence, const StreamEvent& event) = 0;
  virtual void OnFault(const Status& status) = 0;
  // `has_collected`: the turn collected a step. `is_idle`: no request is left.
  virtual void OnTurnEnd(bool has_collected, bool is_idle) = 0;
};

}  // namespace inflight::executor
