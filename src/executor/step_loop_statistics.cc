// SPDX-License-Identifier: Apache-2.0
// What the step loop tells of itself: gauges and counters, a record of each step, and, if asked,
// where each request stood at its end.
#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "executor/step_loop.h"

namespace inflight::executor {
namespace {

RequestStage StageOf(const Sequence& sequence, bool is_paused) {
  if (sequence.is_finished) return RequestStage::kGenerationComplete;
  if (is_paused) return RequestStage::kContextInProgress;
  if (sequence.slot < 0) return RequestStage::kQueued;
  return sequence.num_kv_tokens < sequence.num_prefill_tokens ? RequestStage::kContextInProgress
                                                              : RequestStage::kGenerationInProgress;
}

// As of the last Collect; of one that has just finished, before the scheduler forgets its pause.
RequestStats RequestStatsOf(const Sequence& sequence) {
  const bool is_paused = scheduler::IsPaused(sequence);
  const bool has_beams = sequence.num_beams > 1;
  const int num_generated =
      has_beams ? sequence.num_beam_steps
                : static_cast<int>(sequence.tokens->size()) - sequence.num_prompt_tokens;
  const int num_iterations = has_beams ? sequence.num_beam_steps : sequence.num_yielding_steps;
  const kv_cache::SequenceBlocks& blocks = sequence.blocks;
  return {
      .id = sequence.request->id,
      .sequence_index = sequence.index,
      .stage = StageOf(sequence, is_paused),
      .context_prefill_position =
          is_paused ? 0 : std::min(sequence.num_kv_tokens, sequence.num_prefill_tokens),
      .num_generated_tokens = num_generated,
      .avg_num_decoded_tokens_per_iter =
          num_iterations == 0
              ? 0.0F
              : static_cast<float>(num_generated) / static_cast<float>(num_iterations),
      .scheduled = sequence.has_new_row,
      .paused = is_paused && !sequence.is_finished,
      .kv_blocks_alloc_total = blocks.num_new + blocks.num_reused,
      .kv_blocks_alloc_new = blocks.num_new,
      .kv_blocks_reused = blocks.num_reused,
      .kv_blocks_missed = blocks.num_missed,
  };
}

}  // namespace

void StepLoop::CountStep(const StepInFlight& step, const StepResult& result, int64_t now_ns) {
  const int64_t step_ns = now_ns - std::max(step.launched_ns, last_collect_ns_);
  last_collect_ns_ = now_ns;
  if (step_ns > longest_step_ns()) longest_step_ns_.store(step_ns, std::memory_order_relaxed);
  pace_.Observe(step_ns, step.num_decode_rows, step.num_prefill_tokens);
  draft_pace_.CountStep();
  if (step.num_prefill_tokens == 0 && backend_.info().makes_drafts) {
    const int num_drafted =
        std::accumulate(result.num_drafted.begin(), result.num_drafted.end(), 0);
    draft_pace_.Observe(step_ns, step.num_rows + num_drafted,
                        static_cast<int>(result.token_ids.size()));
  }
  ++stats_.num_steps;
  stats_.num_scheduled_requests = step.num_rows;
  stats_.num_context_requests = step.num_rows - step.num_decode_rows;
  stats_.num_generation_requests = step.num_decode_rows;
  stats_.num_context_tokens = step.num_prefill_tokens;
  stats_.micro_batch_id = first_in_flight_;
  stats_.last_step_ns = step_ns;
  if (options_.step_observer != nullptr) {
    options_.step_observer->OnStep(step_ns, step.num_rows, step.num_tokens);
  }
  if (recorder_->is_on()) {
    recorder_->turn().collected = ProfileOf(step);
    recorder_->turn().device_ns = result.device_end_ns - result.device_begin_ns;
  }
}

TurnProfile::Step StepLoop::ProfileOf(const StepInFlight& step) {
  return {.number = step.ticket,
          .num_rows = step.num_rows,
          .num_tokens = step.num_tokens,
          .num_prompt_tokens = step.num_prefill_tokens};
}

void StepLoop::RecordTurn(int64_t num_tokens_before) {
  if (!recorder_->is_on()) return;
  TurnProfile& turn = recorder_->turn();
  turn.num_tokens_generated = stats_.tokens_generated - num_tokens_before;
  turn.num_active_requests = stats_.num_active_requests;
  turn.num_queued_requests = inbox_.num_queued();
  turn.kv_blocks_used = stats_.kv_blocks_used;
  recorder_->Keep();
}

void StepLoop::PublishStats() {
  stats_.num_paused_requests = scheduler_.num_paused();
  stats_.num_pauses = scheduler_.num_pauses();
  const kv_cache::KvCacheStats kv = kv_cache_.stats();
  stats_.kv_blocks_max = kv.blocks_max;
  stats_.kv_blocks_free = kv.blocks_free;
  stats_.kv_blocks_used = kv.blocks_used;
  stats_.kv_blocks_reused = kv.reused;
  stats_.kv_blocks_missed = kv.missed;
  stats_.kv_blocks_alloc_total = kv.alloc_total;
  stats_.kv_blocks_alloc_new = kv.alloc_new;
  stats_.kv_host_blocks_max = kv.host_blocks_max;
  stats_.kv_host_blocks_used = kv.host_blocks_used;
  stats_.kv_blocks_offloaded = kv.offloaded;
  stats_.kv_blocks_onboarded = kv.onboarded;
  stats_.pinned_memory_bytes = backend_.info().pinned_memory_bytes;  // grows with what is asked for
  published_stats_.Store(stats_);
  RecordIteration();
  RecordRequests();
}

// Nobody is there, or nobody but who is held.
bool StepLoop::IsIdle() const {
  if (num_in_flight_ > 0) return false;
  return requests_.empty() ||
         (num_held_ > 0 && scheduler_.num_waiting() == 0 && scheduler_.runs_only_held());
}

// One record a step, and one with no rows when the loop runs dry: gauges made of the newest record
// then fall back to 0. Another one when those who are held give up their places.
void StepLoop::RecordIteration() {
  if (options_.iter_stats_max_iterations == 0) return;
  const bool is_idle = IsIdle();
  const bool has_new_step = stats_.num_steps != num_recorded_steps_;
  const bool is_known = has_recorded_idle_ && stats_.num_paused_requests == num_recorded_paused_;
  if (!has_new_step && (!is_idle || is_known)) return;
  ExecutorStats record = stats_;
  record.num_queued_requests = inbox_.num_queued();
  record.heartbeat_ns = last_collect_ns_;
  if (has_new_step) iterations_.Push(record);
  num_recorded_steps_ = stats_.num_steps;
  has_recorded_idle_ = is_idle;
  num_recorded_paused_ = stats_.num_paused_requests;
  if (!is_idle) return;
  record.num_scheduled_requests = 0;
  record.num_context_requests = 0;
  record.num_generation_requests = 0;
  record.num_context_tokens = 0;
  record.last_step_ns = 0;
  record.heartbeat_ns = turn_start_ns_ > last_collect_ns_ ? turn_start_ns_ : last_collect_ns_;
  iterations_.Push(record);
}

void StepLoop::NoteEnd(const Sequence& sequence) {
  if (options_.request_stats_max_iterations == 0) return;
  ended_.push_back(RequestStatsOf(sequence));
}

// One record a step, and one when the loop runs dry if somebody ended after the last step.
void StepLoop::RecordRequests() {
  if (options_.request_stats_max_iterations == 0) return;
  const bool has_new_step = stats_.num_steps != num_steps_of_requests_;
  const bool is_idle = requests_.empty() && num_in_flight_ == 0;
  if (!has_new_step && (!is_idle || ended_.empty())) return;
  num_steps_of_requests_ = stats_.num_steps;
  RequestStatsPerIteration record{.iter = stats_.num_steps, .requests = std::exchange(ended_, {})};
  ForEachUnfinished([&record](ActiveRequest& request) {
    for (Sequence& sequence : request.sequences) {
      if (sequence.is_finished) continue;
      record.requests.push_back(RequestStatsOf(sequence));
      sequence.has_new_row = false;
    }
  });
  std::sort(record.requests.begin(), record.requests.end(),
            [](const RequestStats& a, const RequestStats& b) {
              return std::tie(a.id, a.sequence_index) < std::tie(b.id, b.sequence_index);
            });
  request_stats_.Push(std::move(record));
}

ExecutorStats StepLoop::stats() const {
  ExecutorStats stats = published_stats_.Load();
  stats.num_queued_requests = inbox_.num_queued();
  stats.heartbeat_ns = heartbeat_ns();
  stats.last_host_ns = last_host_ns_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace inflight::executor
