// SPDX-License-Identifier: Apache-2.0
// Repeats a journal turn by turn: the same requests and cancels at the same turns, the same times,
// the same steps collected; and compares plans and outputs with the recorded ones.
//
// Of a journal whose beginning is gone nobody knows what the KV cache had for reuse. It begins
// behind the first turn after which no request was left. Its plans are not compared, and of its
// requests the outputs of those that ended of themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "executor/backend.h"
#include "flight_recorder/journal.h"

namespace inflight::flight_recorder {

struct ReplayOptions {
  // Of this request alone, in an empty batch: its outputs are compared. Errors: kNotFound, and
  // kFailedPrecondition where it did not end of itself.
  std::optional<RequestId> alone;
  std::optional<uint64_t> until_step;                       // ends behind the turn that launched it
  std::function<void(const TurnRecord& recorded)> on_turn;  // before it is repeated
};

struct ReplayReport {
  uint64_t num_turns = 0, num_steps = 0, num_requests = 0, num_cancels = 0, num_pauses = 0;
  uint64_t num_ends = 0;        // of sequences, compared
  uint64_t num_unfinished = 0;  // requests that had not ended where the replay did
  uint64_t num_skipped = 0;     // turns before it could begin
  uint64_t digest = 0;     // of all plans and outputs of the replay: equal replays have equal ones
  std::string difference;  // the first, with its step and request; empty: there is none
  std::string stopped;     // why the replay ends before the journal; empty: it does not
};

// `options` as of the header; `backend` over the same model. Errors: of a journal that is broken or
// has hashes of prompts alone; kFailedPrecondition where the backend has another shape.
Result<ReplayReport> Replay(executor::Backend& backend, const ExecutorOptions& options,
                            Journal& journal, const ReplayOptions& replay);

}  // namespace inflight::flight_recorder
