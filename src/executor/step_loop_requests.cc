// SPDX-License-Identifier: Apache-2.0
// How requests enter and leave the step loop.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/no_memory_left.h"
#include "executor/step_loop.h"

namespace inflight::executor {
namespace {

// A client that reads on soon finds its sequences where they were; one that does not costs nobody
// a place for long.
constexpr int64_t kHeldPlaceNs = 100'000'000;

}  // namespace

// False when no other thread and no deadline had anything for the loop.
bool StepLoop::Admit() {
  bool progressed = false;
  progressed |= EmptyHeldPlaces(turn_start_ns_);
  // A request is pushed before anybody can cancel or hold it: take those first, then all requests.
  cancels_.swap(cancels_early_);
  if (inbox_.has_cancels()) {
    inbox_.TakeCancels(&cancels_taken_);
    cancels_.insert(cancels_.end(), cancels_taken_.begin(), cancels_taken_.end());
    cancels_taken_.clear();
  }
  holds_.swap(holds_early_);
  if (inbox_.has_holds()) {
    inbox_.TakeHolds(&holds_taken_);
    holds_.insert(holds_.end(), holds_taken_.begin(), holds_taken_.end());
    holds_taken_.clear();
  }
  while (std::unique_ptr<ActiveRequest> request = inbox_.Pop()) {
    TakeRequest(std::move(request));
    progressed = true;
  }
  progressed |= ApplyCancels();
  progressed |= ApplyHolds();
  progressed |= ExpireDeadlines(turn_start_ns_);
  if (turn_start_ns_ >= inbox_.cancel_all_ns() && !requests_.empty()) {
    if (options_.watcher != nullptr) options_.watcher->OnCancelAll();
    ForEachUnfinished(
        [this](ActiveRequest& request) { EndEarly(request, FinishReason::kCancelled); });
    progressed = true;
  }
  if (progressed) Retire();
  return progressed;
}

void StepLoop::TakeRequest(std::unique_ptr<ActiveRequest> request) {
  ActiveRequest& taken = *request;
  try {
    requests_[taken.id] = std::move(request);
  } catch (const std::bad_alloc&) {  // before anybody knows of it: its end alone
    return EndWith(taken, NoMemoryLeft());
  }
  streams_.Open();  // until Retire
  if (options_.watcher != nullptr) options_.watcher->OnArrival(taken);
  const Request& params = taken.params;
  const double num_sequences =
      static_cast<double>(taken.sequences.size()) * std::max(1, params.sampling.beam_width);
  const double num_tokens =
      static_cast<double>(params.input_ids.size()) + num_sequences * params.max_tokens;
  const double turn = turns_.Take(params.priority, params.client_id, params.share, num_tokens);
  for (Sequence& sequence : taken.sequences) {
    sequence.turn = turn;
    sequence.max_draft_tokens = HasDrafts(sequence) ? draft_pace_.Length(sequence.drafts) : 0;
    scheduler_.Add(&sequence);
  }
  queue_delay_.Arrived(taken.times.enqueued_ns);
  if (taken.next_deadline_ns() != kNever) deadlines_.emplace(taken.next_deadline_ns(), taken.id);
  if (has_fault()) Fail(taken, fault_);
}

bool StepLoop::ApplyCancels() {
  bool progressed = false;
  const bool all_popped = inbox_.all_popped();
  for (const RequestId id : cancels_) {
    const auto found = requests_.find(id);
    if (found != requests_.end()) {
      if (options_.watcher != nullptr) options_.watcher->OnCancel(id);
      EndEarly(*found->second, FinishReason::kCancelled);
      progressed = true;
    } else if (!all_popped) {
      cancels_early_.push_back(id);  // perhaps behind a push that is under way
    }
  }
  cancels_.clear();
  return progressed;
}

bool StepLoop::ApplyHolds() {
  bool progressed = false;
  const bool all_popped = inbox_.all_popped();
  for (const HoldNews& news : holds_) {
    const auto found = requests_.find(news.id);
    if (found == requests_.end()) {
      if (!all_popped) holds_early_.push_back(news);
      continue;
    }
    ActiveRequest& request = *found->second;
    if (request.num_unfinished == 0 || request.is_held == news.is_held) continue;
    if (options_.watcher != nullptr) options_.watcher->OnHold(news.id, news.is_held);
    request.is_held = news.is_held;
    if (news.is_held) {
      request.leaves_place_ns = turn_start_ns_ + kHeldPlaceNs;
      held_places_.emplace(request.leaves_place_ns, request.id);
      ++num_held_;
    } else {
      --num_held_;
      held_places_.erase({request.leaves_place_ns, request.id});
      if (request.is_queued) queue_delay_.Arrived(request.times.enqueued_ns);
    }
    for (Sequence& sequence : request.sequences)
      news.is_held ? scheduler_.Hold(&sequence) : scheduler_.GoOn(&sequence);
    progressed = true;
  }
  holds_.clear();
  return progressed;
}

// Before the turn takes anything: then it does not matter in which turn it came to it, and replays,
// which leave out turns without news, have the same plans.
bool StepLoop::EmptyHeldPlaces(int64_t now_ns) {
  bool progressed = false;
  while (!held_places_.empty() && held_places_.begin()->first <= now_ns) {
    for (Sequence& sequence : requests_.at(held_places_.begin()->second)->sequences)
      scheduler_.PutAside(&sequence);
    held_places_.erase(held_places_.begin());
    progressed = true;
  }
  return progressed;
}

bool StepLoop::ExpireDeadlines(int64_t now_ns) {
  bool progressed = false;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_ns) {
    EndEarly(*requests_.at(deadlines_.begin()->second), FinishReason::kTimedOut);
    progressed = true;
  }
  return progressed;
}

// Nothing runs and the first one still does not fit. Validation leaves no such request, so this is
// a guard against waiting for ever.
void StepLoop::FailHeadOfLine() {
  auto& sequence = static_cast<Sequence&>(*scheduler_.first_waiting());
  Fail(*sequence.request,
       OutOfMemory(fmt::format("KV cache: {} tokens of {} beams do not fit into {} blocks "
                               "(load the model with more KV cache memory)",
                               sequence.max_seq_len, sequence.num_beams,
                               kv_cache_.stats().blocks_max)));
  Retire();
}

// As Plan; where the loop is asked to rest, until it does. Who waits goes on waiting.
bool StepLoop::PlanOrRest() {
  const auto asked = options_.rest == nullptr ? std::nullopt : options_.rest->asked();
  if (!asked) {
    is_coming_to_rest_ = rests_ = false;
    return Plan();
  }
  if (std::exchange(rest_number_, asked->number) != asked->number)
    is_coming_to_rest_ = rests_ = false;
  if (rests_) return false;
  if (!std::exchange(is_coming_to_rest_, true)) BeginRest(asked->mode);
  if (asked->mode == SleepMode::kWait && Plan()) return true;
  if (has_fault()) return false;
  scheduler_.ParkPaused();
  if (num_in_flight_ > 0 || scheduler_.holds_blocks()) return false;
  kv_cache_.Forget();
  rests_ = has_come_to_rest_ = true;
  return false;
}

void StepLoop::BeginRest(SleepMode mode) {
  if (mode == SleepMode::kAbort) {
    ForEachUnfinished(
        [this](ActiveRequest& request) { EndEarly(request, FinishReason::kCancelled); });
    Retire();
  } else if (mode == SleepMode::kKeep) {
    scheduler_.PauseAll();
  }
}

// `event` carries the sequence's last token, if any, and why it ended.
void StepLoop::Finish(Sequence& sequence, StreamEvent event) {
  CHECK(!sequence.is_finished);
  if (options_.watcher != nullptr) options_.watcher->OnEnd(sequence, event);
  ActiveRequest& request = *sequence.request;
  event.flags |= StreamEvent::kStepEnd | StreamEvent::kSequenceEnd;
  if (--request.num_unfinished == 0) {
    event.flags |= StreamEvent::kRequestEnd;
    CountEnd(request, event.finish_reason);
    request.stream->times = request.times;
    request.stream->num_draft_tokens = request.num_draft_tokens;
    request.stream->num_accepted_draft_tokens = request.num_accepted_draft_tokens;
  }
  streams_.Push(event);
  if (request.num_unfinished == 0) request.stream = nullptr;
  sequence.is_finished = true;
  NoteEnd(sequence);
  scheduler_.Remove(&sequence);
  finished_.push_back(&sequence);
}

void StepLoop::EndEarly(ActiveRequest& request, FinishReason reason) {
  for (Sequence& sequence : request.sequences) {
    if (sequence.is_finished) continue;
    StreamEvent event{.stream = request.stream,
                      .cum_log_prob = sequence.cum_log_prob,
                      .sequence_index = static_cast<uint16_t>(sequence.index),
                      .finish_reason = reason};
    const bool keeps_tokens = reason == FinishReason::kCancelled;
    // One that computes again what it told before a pause has less than its stream was told.
    const bool has_beams =
        sequence.slot >= 0 && sequence.num_beam_steps >= std::max(1, sequence.num_beam_steps_sent);
    if (has_beams && keeps_tokens) {
      event.beams = new std::vector<Beam>(backend_.BestBeams(sequence.slot, /*is_last=*/true));
    }
    Finish(sequence, event);
  }
}

void StepLoop::Fail(ActiveRequest& request, const Status& status) {
  if (request.num_unfinished == 0) return;
  request.stream->status = status;
  EndEarly(request, FinishReason::kNotFinished);
}

void StepLoop::CountEnd(ActiveRequest& request, FinishReason reason) {
  switch (reason) {
    case FinishReason::kNotFinished:
      ++stats_.requests_failed;
      break;
    case FinishReason::kCancelled:
      ++stats_.requests_cancelled;
      break;
    case FinishReason::kTimedOut:
      ++stats_.requests_timed_out;
      break;
    default:
      ++stats_.requests_completed;
  }
  if (request.is_queued) {
    LeaveQueue(request);
  } else {
    --stats_.num_active_requests;
  }
  if (request.deadline_ns != kNever) deadlines_.erase({request.deadline_ns, request.id});
  if (!request.is_held) return;
  held_places_.erase({request.leaves_place_ns, request.id});
  --num_held_;
}

void StepLoop::LeaveQueue(ActiveRequest& request) {
  if (request.queue_deadline_ns < request.deadline_ns) {
    deadlines_.erase({request.queue_deadline_ns, request.id});
    if (request.deadline_ns != kNever) deadlines_.emplace(request.deadline_ns, request.id);
  }
  request.is_queued = false;
  turns_.Leave(request.params.priority);
  inbox_.LeftQueue();
}

// The device can no longer be trusted: every request ends with the reason, those that come later
// too.
void StepLoop::Fault(const Status& status) {
  SetFault(status);
  for (const auto& [id, request] : requests_) {
    for (Sequence& sequence : request->sequences) sequence.num_rows_in_flight = 0;
  }
  ForEachUnfinished([this](ActiveRequest& request) { Fail(request, fault_); });
  Retire();
}

// Whether the backend has stopped while nothing was asked of it.
bool StepLoop::FindLoss() {
  if (has_fault() || num_in_flight_ > 0) return false;
  const Status status = backend_.status();
  if (!status.ok()) Fault(status);
  return !status.ok();
}

void StepLoop::SetFault(const Status& status) {
  fault_ = status.WithPrefix("Encountered an error in forwardAsync function");
  logging::Error("device fault, all requests fail", {{"status", status.ToString()}});
  num_in_flight_ = 0;
  if (options_.watcher != nullptr) options_.watcher->OnFault(status);
  has_fault_.store(true, std::memory_order_release);
}

// The host had no memory in the middle of a turn. What scheduler and KV cache say of the requests
// may be half done: all end as after a fault of the device, and none of the two is asked again.
void StepLoop::Break() {
  is_broken_ = true;
  if (!has_fault()) SetFault(NoMemoryLeft());
  for (const auto& [id, request] : requests_) {
    if (request->stream != nullptr) EndWith(*request, fault_);
  }
  num_retired_ += static_cast<int>(requests_.size());
  requests_.clear();
  stats_.num_active_requests = 0;
  published_stats_.Store(stats_);
}

// A turn of a broken loop.
bool StepLoop::FailAllThatCome() {
  bool progressed = num_retired_ > 0;
  while (const std::unique_ptr<ActiveRequest> request = inbox_.Pop()) {
    EndWith(*request, fault_);
    progressed = true;
  }
  inbox_.TakeCancels(&cancels_taken_);
  cancels_taken_.clear();
  inbox_.TakeHolds(&holds_taken_);
  holds_taken_.clear();
  heartbeat_ns_.store(clock_.NowNs(), std::memory_order_relaxed);
  if (progressed) published_stats_.Store(stats_);
  streams_.Flush();
  for (; num_retired_ > 0; --num_retired_) streams_.Close();
  return progressed;
}

// With its last event, whatever the scheduler knows of it.
void StepLoop::EndWith(ActiveRequest& request, const Status& status) {
  request.stream->status = status;
  request.stream->times = request.times;
  streams_.Push(
      {.stream = request.stream,
       .flags = StreamEvent::kStepEnd | StreamEvent::kSequenceEnd | StreamEvent::kRequestEnd});
  request.stream = nullptr;
  if (std::exchange(request.is_queued, false)) inbox_.LeftQueue();
  ++stats_.requests_failed;
}

}  // namespace inflight::executor
