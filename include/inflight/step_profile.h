// SPDX-License-Identifier: Apache-2.0
// Where the time of a step loop goes, turn by turn, while somebody asks for it:
// Executor::step_profiler.
//
// A turn admits, plans and launches one step, and collects one that was launched before, where
// there is anything of each to do (docs/executor.md, "A turn of the loop"). Its phases follow each
// other without gaps: the first begins where the turn does, each other one where the one before it
// ended.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace inflight {

enum class TurnPhase : uint8_t {
  kAdmit,       // takes requests, cancels and deadlines
  kPlan,        // who runs, with how many tokens and which blocks
  kPrepare,     // sets up slots and rows
  kLaunch,      // gives the step to the device; a CPU computes it here, sampling included
  kMasks,       // makes the masks of guides
  kWait,        // for the device
  kCollect,     // appends tokens and finds what has ended
  kRetire,      // gives slots and blocks back
  kStatistics,  // publishes counts and records
  kDeliver,     // hands responses to the threads that build them
};
inline constexpr int kNumTurnPhases = 10;

struct TurnProfile {
  // Each phase comes once at most, but for kMasks: of the step that is launched, and of the one
  // behind the step that is collected.
  static constexpr int kMaxPhases = kNumTurnPhases + 1;

  struct Step {
    int64_t number = 0;  // from 1; 0: the turn had none
    int num_rows = 0;
    int num_tokens = 0;         // that its rows compute
    int num_prompt_tokens = 0;  // of them in prefill: of prompts, and what resumes repeat
  };

  int64_t begin_ns = 0;  // monotonic
  int64_t end_ns() const {
    return num_phases == 0 ? begin_ns : ends_ns[static_cast<size_t>(num_phases - 1)];
  }

  Step launched = {};
  Step collected = {};
  int64_t num_tokens_generated = 0;  // by the collected step, end ids aside
  int64_t device_ns = 0;  // that the device took for it, by its own clock; 0 where it has none
  int num_active_requests = 0, num_queued_requests = 0;  // at the end of the turn
  int64_t kv_blocks_used = 0;                            // the same

  int num_phases = 0;
  std::array<TurnPhase, kMaxPhases> phases = {};  // [num_phases], in the order of time
  std::array<int64_t, kMaxPhases> ends_ns = {};   // [num_phases]
};

struct StepProfile {
  std::vector<TurnProfile> turns = {};  // in the order of time; those without work are left out
  int64_t num_lost_turns = 0;           // for which there was no room
  bool computes_in_launch = false;      // kLaunch is the forward pass, and kWait nothing
};

// Of one executor, which it may outlive: then no turn comes any more.
//
// Threads: all methods are thread-safe, and none holds up the step loop.
// Cost:    a turn of a loop that nobody profiles reads one atomic.
class StepProfiler {
 public:
  virtual ~StepProfiler() = default;

  // From now on turns are kept that begin at `begin_ns` or later, the first `max_turns` of them,
  // for which memory is taken. False: a profile is being taken already.
  virtual bool Begin(int64_t begin_ns, size_t max_turns) = 0;
  // What was kept of turns that have ended; empty where no profile is being taken.
  virtual StepProfile End() = 0;
};

}  // namespace inflight
