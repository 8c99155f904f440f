// SPDX-License-Identifier: Apache-2.0
// The step loop: admits requests, plans steps, launches them, collects what they yielded. `Step` is
// the table of contents. The thread around it is in executor.cc; tests call Step themselves.
//
//   Step N+1 is planned and launched while N computes, up to the backend's depth. A sequence found
//   finished at Collect may have rows in flight: they are discarded, and its slot and blocks are
//   reused only after the last of them was collected (Retire).
//
// Threads: one thread calls Step. stats() and the health queries are for any thread.
// Steady state (nobody joins or leaves) allocates nothing, locks nothing and logs nothing, but for
// request statistics where they are asked for. A profile has its memory before it begins.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "executor/backend.h"
#include "executor/guide_masks.h"
#include "executor/inbox.h"
#include "executor/iteration_ring.h"
#include "executor/late_input_source.h"
#include "executor/loop_watcher.h"
#include "executor/queue_delay.h"
#include "executor/request_stats_ring.h"
#include "executor/rest_gate.h"
#include "executor/seqlock.h"
#include "executor/sequence.h"
#include "executor/streams.h"
#include "executor/turn_recorder.h"
#include "kv_cache/kv_cache.h"
#include "scheduler/draft_pace.h"
#include "scheduler/fair_turns.h"
#include "scheduler/prefill_pace.h"
#include "scheduler/scheduler.h"

namespace inflight::executor {

struct StepLoopOptions {
  ExecutorLimits limits;
  bool enable_prefix_reuse = true;
  bool enable_chunked_prefill = true;
  SchedulerPolicy scheduler_policy = SchedulerPolicy::kGuaranteedNoEvict;
  ChunkingPolicy chunking_policy = ChunkingPolicy::kFirstComeFirstServed;
  int64_t step_time_goal_ns = 0;  // <= 0: none
  int64_t max_queue_delay_ns = 0;
  int iter_stats_max_iterations = 0;      // records kept for TakeIterationStats
  int request_stats_max_iterations = 0;   // the same for TakeRequestStats; 0: no work
  StepObserver* step_observer = nullptr;  // not owned
  std::shared_ptr<KvObserver> kv_observer = nullptr;
  LateInputSource* late_inputs = nullptr;  // not owned; in place of the masks of guides
  LoopWatcher* watcher = nullptr;          // not owned
  RestGate* rest = nullptr;                // not owned; null: nobody brings it to rest
};
// The part of it that ExecutorOptions say.
StepLoopOptions LoopOptionsOf(const ExecutorOptions& options, const ExecutorLimits& limits);

class StepLoop {
 public:
  // All are borrowed and outlive the loop.
  StepLoop(const StepLoopOptions& options, Backend& backend, Inbox& inbox, StreamHub& streams,
           Clock& clock);
  ~StepLoop();

  // One turn. False when there was nothing to do. Where the host has no memory for it, a fault as
  // of the device.
  bool Step();

  // When an idle loop has to turn although nobody sends anything: a deadline, or the end of a queue
  // delay. kNever when there is neither.
  int64_t next_turn_ns() const;

  ExecutorStats stats() const;
  void TakeIterationStats(std::vector<ExecutorStats>* records) { iterations_.Take(records); }
  void TakeRequestStats(std::vector<RequestStatsPerIteration>* records) {
    request_stats_.Take(records);
  }
  std::shared_ptr<StepProfiler> step_profiler() const { return recorder_; }
  bool has_fault() const { return has_fault_.load(std::memory_order_acquire); }
  const Status& fault() const { return fault_; }  // for any thread, where there is one
  int64_t longest_step_ns() const { return longest_step_ns_.load(std::memory_order_relaxed); }
  int64_t heartbeat_ns() const { return heartbeat_ns_.load(std::memory_order_relaxed); }

 private:
  struct RowInFlight {
    Sequence* sequence = nullptr;
    int num_query_tokens = 0;
    int num_draft_tokens = 0;  // the last of them
    bool is_prefill = false;
    bool has_late_inputs = false;
  };
  struct StepInFlight {
    Ticket ticket = 0;
    int num_rows = 0, num_decode_rows = 0, num_tokens = 0, num_prefill_tokens = 0;
    bool needs_late_inputs = false;
    int64_t launched_ns = 0;
    std::vector<RowInFlight> rows;  // [num_rows]
  };

  bool Turn();
  int64_t ReadTime() const;
  // The phases, in order.
  bool Admit();
  bool PlanOrRest();
  bool Plan();
  void Prepare();
  bool Launch();
  void Collect();
  void Retire();

  void TakeRequest(std::unique_ptr<ActiveRequest> request);
  bool ApplyCancels();
  bool ApplyHolds();
  bool EmptyHeldPlaces(int64_t now_ns);
  bool ExpireDeadlines(int64_t now_ns);
  void FailHeadOfLine();
  void BeginRest(SleepMode mode);
  bool MayStart();
  void SetUp(Sequence& sequence);
  void ProvideLateInputs();
  Status FillLateInputs(const StepInFlight& step);
  static void Prefetch(const StepInFlight& step);
  void CollectRow(const StepResult& result, int row_idx, const RowInFlight& row, int64_t now_ns);
  int CollectBeams(const StepResult& result, int row_idx, const RowInFlight& row, int64_t now_ns);
  StreamEvent BeamEvent(Sequence& sequence, FinishReason reason) const;
  static void TakeLogits(Sequence& sequence, const StepResult& result, int row_idx, int num_tokens);
  void CountDrafts(Sequence& sequence, const StepResult& result, int row_idx, int num_kept);
  bool HasDrafts(const Sequence& sequence) const;  // may have some of the backend's
  void CountStep(const StepInFlight& step, const StepResult& result, int64_t now_ns);

  // Ends a sequence, or all of a request, with its last event.
  void Finish(Sequence& sequence, StreamEvent event);
  void EndEarly(ActiveRequest& request, FinishReason reason);
  void Fail(ActiveRequest& request, const Status& status);
  void Fault(const Status& status);
  bool FindLoss();
  void SetFault(const Status& status);
  void Break();
  bool FailAllThatCome();
  void EndWith(ActiveRequest& request, const Status& status);
  void CountEnd(ActiveRequest& request, FinishReason reason);
  void LeaveQueue(ActiveRequest& request);
  template <typename Function>
  void ForEachUnfinished(Function function) {
    for (const auto& [id, request] : requests_) {
      if (request->num_unfinished > 0) function(*request);
    }
  }
  void PublishStats();
  bool IsIdle() const;
  void RecordIteration();
  void NoteEnd(const Sequence& sequence);
  void RecordRequests();
  static TurnProfile::Step ProfileOf(const StepInFlight& step);
  void RecordTurn(int64_t num_tokens_before);

  StepInFlight& Oldest() { return in_flight_[static_cast<size_t>(first_in_flight_)]; }
  // No step is launched behind one that waits for what those before it yield.
  bool AwaitsLateInputs() { return num_in_flight_ > 0 && At(num_in_flight_ - 1).needs_late_inputs; }
  StepInFlight& At(int i) {
    return in_flight_[static_cast<size_t>((first_in_flight_ + i) % depth_)];
  }

  const StepLoopOptions options_;
  Backend& backend_;
  Inbox& inbox_;
  StreamHub& streams_;
  Clock& clock_;
  const int depth_;

  kv_cache::KvCache kv_cache_;
  scheduler::Scheduler scheduler_;
  scheduler::PriorityTurns turns_;
  scheduler::PrefillPace pace_;
  scheduler::DraftPace draft_pace_;
  QueueDelay queue_delay_;
  scheduler::PlannedStep step_;

  std::vector<StepInFlight> in_flight_;  // [depth], a ring
  int first_in_flight_ = 0;
  int num_in_flight_ = 0;
  int64_t next_step_id_ = 1;
  GuideMasks guide_masks_;
  LateInputSource* const late_input_source_;  // null: the backend takes none
  LateInputs late_inputs_;

  std::unordered_map<RequestId, std::unique_ptr<ActiveRequest>> requests_;
  std::set<std::pair<int64_t, RequestId>> deadlines_;
  std::vector<RequestId> cancels_;  // to apply now
  std::vector<RequestId> cancels_taken_;
  std::vector<RequestId> cancels_early_;  // of requests that are still being pushed
  std::vector<HoldNews> holds_, holds_taken_, holds_early_;  // the same of holds
  // Held requests that have not given up slots and blocks, by when they do.
  std::set<std::pair<int64_t, RequestId>> held_places_;
  int num_held_ = 0;                 // requests
  std::vector<Sequence*> finished_;  // wait for their last row in flight
  Status fault_;

  int num_retired_ = 0;  // requests given up in this turn

  // Of the rest that is asked for (rest_gate.h).
  uint64_t rest_number_ = 0;  // of the newest
  bool is_coming_to_rest_ = false;
  bool rests_ = false;
  bool has_come_to_rest_ = false;  // in this turn

  // Times of this turn.
  int64_t turn_start_ns_ = 0;
  int64_t waited_ns_ = 0;
  int64_t last_collect_ns_ = 0;
  int64_t last_device_end_ns_ = 0;  // of the step before, by the device's clock

  ExecutorStats stats_;
  SeqLock<ExecutorStats> published_stats_;
  IterationRing iterations_;
  int64_t num_recorded_steps_ = 0;
  bool has_recorded_idle_ = true;  // the newest record says that there is nothing to do
  int num_recorded_paused_ = 0;    // and how many are paused
  RequestStatsRing request_stats_;
  std::vector<RequestStats> ended_;  // since the last record of requests; of a sequence each
  int64_t num_steps_of_requests_ = 0;
  const std::shared_ptr<TurnRecorder> recorder_;
  std::atomic<bool> has_fault_{false};
  bool is_broken_ =
      false;  // a turn ended in its middle: nobody asks scheduler_ and kv_cache_ again
  std::atomic<int64_t> heartbeat_ns_{0};
  std::atomic<int64_t> last_host_ns_{0};  // waking the stream threads included
  std::atomic<int64_t> longest_step_ns_{0};
};

}  // namespace inflight::executor
