// SPDX-License-Identifier: Apache-2.0
#include "executor/step_loop.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/no_memory_left.h"
#include "base/status_macros.h"

namespace inflight::executor {

using decoding::GuideVerdict;

namespace {

static_assert(kv_cache::KvCache::kMaxCopies <= scheduler::StepPlan::kMaxCopies);

std::vector<kv_cache::GroupConfig> GroupConfigs(const BackendInfo& info) {
  std::vector<kv_cache::GroupConfig> configs;
  for (const KvGroup& group : info.kv_groups) {
    configs.push_back({.num_blocks = group.num_blocks,
                       .block_size = group.block_size,
                       .window = group.window,
                       .num_sinks = group.num_sinks,
                       .num_host_blocks = group.num_host_blocks});
  }
  return configs;
}

}  // namespace

StepLoopOptions LoopOptionsOf(const ExecutorOptions& options, const ExecutorLimits& limits) {
  return {.limits = limits,
          .enable_prefix_reuse = options.enable_prefix_reuse,
          .enable_chunked_prefill = options.enable_chunked_prefill,
          .scheduler_policy = options.scheduler_policy,
          .chunking_policy = options.chunking_policy,
          .step_time_goal_ns = static_cast<int64_t>(options.step_time_goal_ms * 1e6),
          .max_queue_delay_ns = options.max_queue_delay_us * 1000,
          .iter_stats_max_iterations = options.iter_stats_max_iterations,
          .request_stats_max_iterations = options.request_stats_max_iterations,
          .step_observer = options.step_observer,
          .kv_observer = options.kv_observer};
}

StepLoop::StepLoop(const StepLoopOptions& options, Backend& backend, Inbox& inbox,
                   StreamHub& streams, Clock& clock)
    : options_(options),
      backend_(backend),
      inbox_(inbox),
      streams_(streams),
      clock_(clock),
      depth_(backend.info().depth),
      kv_cache_(GroupConfigs(backend.info()), options.enable_prefix_reuse),
      scheduler_({.max_batch_size = options.limits.max_batch_size,
                  .max_num_tokens = options.limits.max_num_tokens,
                  .max_slots = backend.info().max_slots,
                  .depth = depth_,
                  .looks_ahead = backend.info().looks_ahead,
                  .max_tokens_per_row = backend.info().max_tokens_per_row,
                  .max_drafts = backend.info().max_drafts,
                  .policy = options.scheduler_policy,
                  .chunking = options.chunking_policy,
                  .enable_chunked_prefill = options.enable_chunked_prefill},
                 &kv_cache_),
      pace_(options.step_time_goal_ns, options.limits.max_num_tokens, backend.info().least_step_ns),
      draft_pace_(options.limits.max_draft_len, backend.info().draft_chances),
      queue_delay_(options.max_queue_delay_ns),
      in_flight_(static_cast<size_t>(depth_)),
      guide_masks_(backend.info().vocab_size, backend.info().draft_parents),
      late_input_source_(options.late_inputs != nullptr     ? options.late_inputs
                         : backend.info().wants_guide_masks ? &guide_masks_
                                                            : nullptr),
      iterations_(static_cast<size_t>(options.iter_stats_max_iterations)),
      request_stats_(static_cast<size_t>(options.request_stats_max_iterations)),
      recorder_(std::make_shared<TurnRecorder>(clock, /*computes_in_launch=*/depth_ == 1)) {
  if (options.kv_observer != nullptr) kv_cache_.Observe(options.kv_observer.get());
  const auto max_rows = static_cast<size_t>(options.limits.max_batch_size);
  step_.rows.reserve(max_rows);
  step_.admitted.reserve(max_rows);
  for (StepInFlight& step : in_flight_) step.rows.reserve(max_rows);
  finished_.reserve(static_cast<size_t>(backend.info().max_slots));
  stats_.max_active_requests = options.limits.max_batch_size;
  stats_.cpu_memory_bytes = backend.info().cpu_memory_bytes;
  stats_.gpu_memory_bytes = backend.info().gpu_memory_bytes;
  heartbeat_ns_.store(clock_.NowNs(), std::memory_order_relaxed);
  PublishStats();
}

StepLoop::~StepLoop() { CHECK(requests_.empty()); }

bool StepLoop::Step() {
  if (is_broken_) return FailAllThatCome();
  try {
    return Turn();
  } catch (const std::bad_alloc&) {
    Break();
    return true;
  }
}

// Of a turn: a watcher has each of them.
int64_t StepLoop::ReadTime() const {
  const int64_t now_ns = clock_.NowNs();
  if (options_.watcher != nullptr) options_.watcher->OnTime(now_ns);
  return now_ns;
}

bool StepLoop::Turn() {
  turn_start_ns_ = ReadTime();
  waited_ns_ = 0;
  heartbeat_ns_.store(turn_start_ns_, std::memory_order_relaxed);
  recorder_->BeginTurn(turn_start_ns_);
  const int64_t num_tokens_before = stats_.tokens_generated;

  bool progressed = Admit();
  recorder_->Mark(TurnPhase::kAdmit);
  bool launched = false;
  const bool has_plan = !has_fault() && !AwaitsLateInputs() && PlanOrRest();
  progressed |= has_come_to_rest_;
  recorder_->Mark(TurnPhase::kPlan);
  if (has_plan) {
    Prepare();
    launched = Launch();
  }
  const bool is_full = num_in_flight_ == depth_;
  const bool collects =
      num_in_flight_ > 0 && (is_full || !launched || backend_.Ready(Oldest().ticket));
  if (collects) {
    Collect();
    Retire();
    recorder_->Mark(TurnPhase::kRetire);
    progressed = true;
  }
  progressed |= launched || num_retired_ > 0;
  if (!progressed) progressed = FindLoss();
  // Before clients are woken, so that whoever has its last response finds it counted.
  if (progressed) PublishStats();
  if (std::exchange(has_come_to_rest_, false)) options_.rest->NoteRest();
  recorder_->Mark(TurnPhase::kStatistics);
  streams_.Flush();
  recorder_->Mark(TurnPhase::kDeliver);
  if (progressed) {
    RecordTurn(num_tokens_before);
    last_host_ns_.store(ReadTime() - turn_start_ns_ - waited_ns_, std::memory_order_relaxed);
  }
  if (options_.watcher != nullptr)
    options_.watcher->OnTurnEnd(collects, requests_.empty() && num_in_flight_ == 0);
  for (; num_retired_ > 0; --num_retired_) streams_.Close();  // Shutdown may go on
  return progressed;
}

bool StepLoop::MayStart() {
  if (is_coming_to_rest_) return false;
  const int num_places = options_.limits.max_batch_size - scheduler_.num_running_rows();
  return queue_delay_.MayStart(turn_start_ns_, scheduler_.num_waiting(), num_places);
}

// False when there is nothing to launch.
bool StepLoop::Plan() {
  const bool may_start = MayStart();
  scheduler_.Plan(pace_.share(), &step_, may_start);
  if (step_.plan.num_rows > 0) return true;
  if (num_in_flight_ > 0) return false;
  if (!scheduler_.runs_only_held()) {
    Fault(Internal("a step yielded nothing for a sequence that had not ended"));
  } else if (scheduler_.num_running() == 0 && scheduler_.num_waiting() > 0 && may_start) {
    FailHeadOfLine();
  }
  return false;
}

void StepLoop::Prepare() {
  for (scheduler::SequenceState* state : step_.admitted) SetUp(static_cast<Sequence&>(*state));
  scheduler::StepPlan& plan = step_.plan;
  for (int r = plan.num_rows - 1; r >= 0; --r) {  // a slot that could not be set up
    const auto& sequence = static_cast<Sequence&>(*step_.rows[static_cast<size_t>(r)]);
    if (sequence.is_finished) scheduler::Scheduler::DropRow(r, &step_);
  }
  if (late_input_source_ == nullptr) return;
  for (int r = 0; r < plan.num_rows; ++r) {
    scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    const auto& sequence = static_cast<Sequence&>(*step_.rows[static_cast<size_t>(r)]);
    if (row.yields != 0 && late_input_source_->Wants(sequence)) row.has_late_inputs = 1;
  }
}

// The sequence got a slot: what does not change from step to step goes to the device. One that
// resumes goes on from what it knows.
void StepLoop::SetUp(Sequence& sequence) {
  if (sequence.is_finished) return;
  ActiveRequest& request = *sequence.request;
  if (request.is_queued) {
    turns_.Begin(sequence.priority, sequence.turn);
    LeaveQueue(request);
    // It may have come after the turn began.
    request.times.first_scheduled_ns = std::max(turn_start_ns_, request.times.enqueued_ns);
    ++stats_.num_active_requests;
    ++stats_.requests_started;
    stats_.queue_ns += request.times.first_scheduled_ns - request.times.enqueued_ns;
  }
  if (sequence.tokens != &sequence.known) {
    sequence.known.reserve(static_cast<size_t>(sequence.max_seq_len));
    sequence.known = *sequence.tokens;
    sequence.tokens = &sequence.known;
  }
  if (backend_.info().wants_guide_masks) GuideMasks::SetUp(&sequence);
  sequence.num_kv_tokens = sequence.num_cached_tokens;
  if (sequence.num_pauses > 0) {
    stats_.tokens_recomputed += sequence.num_prefill_tokens - sequence.num_cached_tokens;
    stats_.tokens_recomputed += std::exchange(sequence.num_beam_steps, 0) * sequence.num_beams;
  } else {
    // The first of a request is set up before any has an event.
    if (sequence.index == 0) request.stream->num_cached_tokens = sequence.num_cached_tokens;
    stats_.prompt_tokens += sequence.num_prompt_tokens;
    stats_.prompt_tokens_cached += sequence.num_cached_tokens;
  }
  SlotSetup setup{.slot = sequence.slot,
                  .tokens = sequence.known,
                  .num_prompt_tokens = sequence.num_prompt_tokens,
                  .max_seq_len = sequence.max_seq_len,
                  .request = &request.params,
                  .seed = sequence.seed,
                  .cum_log_prob = sequence.cum_log_prob,
                  .beam_slots = sequence.beam_slots,
                  .adapter = request.adapter.get()};
  if (sequence.wants_context_logits) setup.context_logits_from = sequence.num_context_logits;
  const Status status = backend_.SetupSlot(setup);
  if (!status.ok()) Fail(request, status);
}

// False when nothing was launched.
bool StepLoop::Launch() {
  scheduler::StepPlan& plan = step_.plan;
  if (plan.num_rows == 0) {
    Retire();
    return false;
  }
  plan.step_id = next_step_id_++;
  plan.num_copies = 0;
  for (const kv_cache::HostCopy& copy : kv_cache_.copies()) {
    plan.copies[static_cast<size_t>(plan.num_copies++)] = {copy.group, copy.from, copy.to};
  }
  kv_cache_.ClearCopies();
  StepInFlight& step = At(num_in_flight_);
  step.num_rows = plan.num_rows;
  step.num_decode_rows = plan.num_decode_rows;
  step.num_tokens = plan.num_tokens;
  step.num_prefill_tokens = 0;
  step.needs_late_inputs = false;
  step.rows.clear();
  for (int r = 0; r < plan.num_rows; ++r) {
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    auto* sequence = static_cast<Sequence*>(step_.rows[static_cast<size_t>(r)]);
    ++sequence->num_rows_in_flight;
    step.needs_late_inputs |= row.has_late_inputs != 0;
    if (row.is_prefill != 0) step.num_prefill_tokens += row.num_query_tokens;
    step.rows.push_back({.sequence = sequence,
                         .num_query_tokens = row.num_query_tokens,
                         .num_draft_tokens = row.num_draft_tokens,
                         .is_prefill = row.is_prefill != 0,
                         .has_late_inputs = row.has_late_inputs != 0});
  }
  if (options_.watcher != nullptr)
    options_.watcher->OnLaunch(plan, step_.rows, scheduler_.num_paused());
  step.launched_ns = ReadTime();
  recorder_->Mark(TurnPhase::kPrepare, step.launched_ns);
  ++num_in_flight_;
  const Result<Ticket> ticket = backend_.Launch(plan);
  const int64_t now_ns = ReadTime();
  recorder_->Mark(TurnPhase::kLaunch, now_ns);
  stats_.last_launch_ns = now_ns - step.launched_ns;
  waited_ns_ += stats_.last_launch_ns;
  if (!ticket.ok()) {
    Fault(ticket.status());
    return false;
  }
  step.ticket = *ticket;
  if (recorder_->is_on()) recorder_->turn().launched = ProfileOf(step);
  ProvideLateInputs();
  return true;
}

// The oldest step in flight gets its late inputs as soon as everything before it is known.
void StepLoop::ProvideLateInputs() {
  if (num_in_flight_ == 0 || !Oldest().needs_late_inputs) return;
  StepInFlight& step = Oldest();
  step.needs_late_inputs = false;
  late_inputs_.masks.clear();
  Status status = FillLateInputs(step);
  if (status.ok()) status = backend_.ProvideLateInputs(step.ticket, late_inputs_);
  recorder_->Mark(TurnPhase::kMasks);
  if (!status.ok()) Fault(status);
}

Status StepLoop::FillLateInputs(const StepInFlight& step) {
  for (const RowInFlight& row : step.rows) {
    if (!row.has_late_inputs || row.sequence->is_finished) continue;
    std::span<const TokenId> drafts;
    if (row.num_draft_tokens > 0) {
      ASSIGN_OR_RETURN(drafts, backend_.DraftsOf(step.ticket, row.sequence->slot));
    }
    late_input_source_->Fill(*row.sequence, drafts, &late_inputs_);
  }
  return Status::Ok();
}

void StepLoop::Collect() {
  StepInFlight& step = Oldest();
  const int64_t before_ns = ReadTime();
  const Result<const StepResult*> result = backend_.Collect(step.ticket);
  const int64_t now_ns = ReadTime();
  recorder_->Mark(TurnPhase::kWait, now_ns);
  waited_ns_ += now_ns - before_ns;
  if (!result.ok()) {
    Fault(result.status());
    return;
  }
  Prefetch(step);
  for (int r = 0; r < step.num_rows;) {
    const RowInFlight& row = step.rows[static_cast<size_t>(r)];
    if (row.sequence->num_beams > 1) {
      r += CollectBeams(**result, r, row, now_ns);
    } else {
      CollectRow(**result, r++, row, now_ns);
    }
  }
  if (last_device_end_ns_ != 0)
    stats_.last_idle_ns = (*result)->device_begin_ns - last_device_end_ns_;
  last_device_end_ns_ = (*result)->device_end_ns;
  CountStep(step, **result, now_ns);
  recorder_->Mark(TurnPhase::kCollect);
  first_in_flight_ = (first_in_flight_ + 1) % depth_;
  --num_in_flight_;
  ProvideLateInputs();
}

// A forward pass on the CPU leaves nothing of the bookkeeping in the caches. Rows would wait for
// memory line after line; asked for level by level, all rows wait together.
void StepLoop::Prefetch(const StepInFlight& step) {
  constexpr size_t kLineBytes = 64;
  for (const RowInFlight& row : step.rows) {
    const auto* bytes = reinterpret_cast<const std::byte*>(row.sequence);
    for (size_t i = 0; i < sizeof(Sequence); i += kLineBytes) __builtin_prefetch(bytes + i, 1);
  }
  for (const RowInFlight& row : step.rows) {
    const Sequence& sequence = *row.sequence;
    __builtin_prefetch(&sequence.request->times, 1);
    __builtin_prefetch(&sequence.request->stream, 1);
    __builtin_prefetch(sequence.known.data() + sequence.known.size(), 1);
    __builtin_prefetch(sequence.blocks.groups.data(), 1);
  }
  for (const RowInFlight& row : step.rows) __builtin_prefetch(row.sequence->request->stream);
}

void StepLoop::CollectRow(const StepResult& result, int row_idx, const RowInFlight& row,
                          int64_t now_ns) {
  Sequence& sequence = *row.sequence;
  --sequence.num_rows_in_flight;
  if (sequence.is_finished) return;  // found finished or ended early while the row was in flight
  sequence.has_new_row = true;
  const auto r = static_cast<size_t>(row_idx);
  const auto begin = static_cast<size_t>(result.token_begin[r]);
  auto end = static_cast<size_t>(result.token_begin[r + 1]);
  FinishReason reason = result.finish_reasons[r];
  GuideVerdict verdict = result.verdicts[r];
  if (row.has_late_inputs && sequence.guide != nullptr) {
    const auto drawn = std::span(result.token_ids).subspan(begin, end - begin);
    end = begin + GuideMasks::Follow(sequence, drawn, result.accepted_nodes[r], &verdict);
    if (verdict != GuideVerdict::kTokens) reason = FinishReason::kEndId;
  }
  const Status status = decoding::StatusOf(verdict);
  if (!status.ok() && begin == end) return Fail(*sequence.request, status);
  const int num_yielded = static_cast<int>(end - begin);
  // Drafts of the client were judged, whatever became of them.
  if (sequence.num_prompt_drafts > 0 && num_yielded > 0 && reason == FinishReason::kNotFinished)
    reason = FinishReason::kLength;

  // What the row computed that stays: its known tokens and the drafts that were accepted, which is
  // everything before the newest token.
  const int num_rejected = row.num_draft_tokens - std::max(0, num_yielded - 1);
  sequence.num_kv_tokens += row.num_query_tokens - num_rejected;
  scheduler::Scheduler::Reconcile(&sequence, num_rejected);
  if (row.is_prefill) scheduler_.Publish(&sequence, sequence.num_kv_tokens);
  // Where a guide ended the row all that it yielded were drafts.
  if (const int num_drawn = verdict == GuideVerdict::kTokens ? 1 : 0; num_yielded > 0)
    CountDrafts(sequence, result, row_idx, num_yielded - num_drawn);
  scheduler_.Advance(&sequence, sequence.num_kv_tokens);
  if (begin < end && reason == FinishReason::kEndId && verdict == GuideVerdict::kTokens)
    --end;  // the end id is not returned
  TakeLogits(sequence, result, row_idx, static_cast<int>(end - begin));
  if (begin == end && reason == FinishReason::kNotFinished) return;

  sequence.cum_log_prob = result.cum_log_probs[r];
  StreamEvent event{.stream = sequence.request->stream,
                    .cum_log_prob = sequence.cum_log_prob,
                    .sequence_index = static_cast<uint16_t>(sequence.index)};
  for (size_t i = begin; i < end; ++i) {
    event.token = result.token_ids[i];
    event.log_prob = result.log_probs[i];
    event.flags = StreamEvent::kToken;
    sequence.known.push_back(event.token);
    if (i + 1 < end) streams_.Push(event);
  }
  if (begin < end) {
    sequence.request->NoteToken(now_ns);
    ++sequence.num_yielding_steps;
    ++stats_.rows_decoded;
    stats_.tokens_decoded += static_cast<int64_t>(end - begin);
    stats_.tokens_generated += static_cast<int64_t>(end - begin);
  }
  event.flags |= StreamEvent::kStepEnd;
  if (!status.ok()) {  // behind the tokens that could come
    streams_.Push(event);
    Fail(*sequence.request, status);
  } else if (reason != FinishReason::kNotFinished) {
    event.finish_reason = reason;
    Finish(sequence, event);
  } else {
    streams_.Push(event);
  }
}

bool StepLoop::HasDrafts(const Sequence& sequence) const {
  const Request& params = sequence.request->params;
  return backend_.info().makes_drafts && sequence.num_beams == 1 &&
         !params.sampling.disable_speculation;
}

// The row had drafts, or could have had; what became of them says how many the next one gets.
void StepLoop::CountDrafts(Sequence& sequence, const StepResult& result, int row_idx,
                           int num_kept) {
  const int num_drafted = result.num_drafted[static_cast<size_t>(row_idx)];
  const int num_accepted = std::min(num_drafted, num_kept);
  stats_.tokens_drafted += num_drafted;
  stats_.drafts_accepted += num_accepted;
  sequence.request->num_draft_tokens += num_drafted;
  sequence.request->num_accepted_draft_tokens += num_accepted;
  if (!HasDrafts(sequence)) return;
  draft_pace_.Note(&sequence.drafts, num_drafted, num_accepted,
                   result.accepted_nodes[static_cast<size_t>(row_idx)]);
  sequence.max_draft_tokens = draft_pace_.Length(sequence.drafts);
}

// Before the events of the row, so that the stream's thread finds them there.
void StepLoop::TakeLogits(Sequence& sequence, const StepResult& result, int row_idx,
                          int num_tokens) {
  if (result.logits.empty()) return;
  const std::shared_ptr<RowLogits>& logits = result.logits[static_cast<size_t>(row_idx)];
  if (logits == nullptr) return;
  sequence.num_context_logits += logits->context.num_rows;
  sequence.request->stream->logits->Push(sequence.index, logits, num_tokens);
}

// Slots and blocks of finished sequences return once no step in flight holds them.
void StepLoop::Retire() {
  for (size_t i = 0; i < finished_.size();) {
    Sequence* sequence = finished_[i];
    if (sequence->num_rows_in_flight > 0) {
      ++i;
      continue;
    }
    finished_[i] = finished_.back();
    finished_.pop_back();
    if (sequence->slot >= 0) backend_.ReleaseSlot(sequence->slot);
    scheduler_.Release(sequence, sequence->num_kv_tokens);
    ActiveRequest& request = *sequence->request;
    if (--request.num_unreleased > 0) continue;
    requests_.erase(request.id);
    ++num_retired_;
  }
}

int64_t StepLoop::next_turn_ns() const {
  if (is_broken_) return kNever;
  int64_t deadline_ns = deadlines_.empty() ? kNever : deadlines_.begin()->first;
  if (!held_places_.empty()) deadline_ns = std::min(deadline_ns, held_places_.begin()->first);
  if (rests_) return deadline_ns;
  return scheduler_.num_waiting() > 0 ? std::min(deadline_ns, queue_delay_.opens_ns())
                                      : deadline_ns;
}

}  // namespace inflight::executor
