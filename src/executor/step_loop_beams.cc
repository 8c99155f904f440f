// SPDX-License-Identifier: Apache-2.0
// What a collected step yielded for a beam search: which beam goes on from which, and what the
// stream is told.
#include <array>
#include <span>

#include "executor/step_loop.h"

namespace inflight::executor {
namespace {

constexpr std::array<int32_t, scheduler::Scheduler::kMaxBeamWidth> kAllFromTheFirst{};

}  // namespace

// The number of rows: one of the prompt, else one for each beam.
int StepLoop::CollectBeams(const StepResult& result, int row_idx, const RowInFlight& row,
                           int64_t now_ns) {
  Sequence& sequence = *row.sequence;
  const int num_rows = row.is_prefill ? 1 : sequence.num_beams;
  sequence.num_rows_in_flight -= num_rows;
  if (sequence.is_finished) return num_rows;
  sequence.has_new_row = true;
  sequence.num_kv_tokens += row.num_query_tokens;
  if (row.is_prefill) scheduler_.Publish(&sequence, sequence.num_kv_tokens);
  TakeLogits(sequence, result, row_idx, /*num_tokens=*/0);

  if (sequence.num_kv_tokens < sequence.num_prompt_tokens) return num_rows;  // a chunk of it
  ++sequence.num_beam_steps;
  ++stats_.rows_decoded;
  ++stats_.tokens_decoded;
  sequence.request->NoteToken(now_ns);

  const auto r = static_cast<size_t>(row_idx);
  const bool is_guided = sequence.request->params.guide != nullptr;
  if (const Status status = decoding::StatusOf(result.verdicts[r], is_guided); !status.ok()) {
    Fail(*sequence.request, status);
    return num_rows;
  }
  const FinishReason reason = result.finish_reasons[r];
  if (reason != FinishReason::kNotFinished) {
    StreamEvent event = BeamEvent(sequence, reason);
    if (!event.beams->empty()) event.finish_reason = event.beams->front().finish_reason;
    for (const Beam& beam : *event.beams) {
      stats_.tokens_generated += static_cast<int64_t>(beam.output_ids.size());
    }
    Finish(sequence, event);
    return num_rows;
  }
  const auto num_beams = static_cast<size_t>(sequence.num_beams);
  const auto parents = row.is_prefill
                           ? std::span<const int32_t>(kAllFromTheFirst).first(num_beams)
                           : std::span<const int32_t>(result.parents).subspan(r, num_beams);
  scheduler_.Reorder(&sequence, parents, sequence.num_kv_tokens);
  // A search that was paused finds again what the stream was told before.
  if (sequence.request->params.streaming &&
      sequence.num_beam_steps > sequence.num_beam_steps_sent) {
    sequence.num_beam_steps_sent = sequence.num_beam_steps;
    StreamEvent event = BeamEvent(sequence, reason);
    event.flags |= StreamEvent::kStepEnd;
    streams_.Push(event);
  }
  return num_rows;
}

StreamEvent StepLoop::BeamEvent(Sequence& sequence, FinishReason reason) const {
  return {.stream = sequence.request->stream,
          .sequence_index = static_cast<uint16_t>(sequence.index),
          .finish_reason = reason,
          .beams = new std::vector<Beam>(
              backend_.BestBeams(sequence.slot, /*is_last=*/reason != FinishReason::kNotFinished))};
}

}  // namespace inflight::executor
