// SPDX-License-Identifier: Apache-2.0
// A request that waits: for a slot of its sequence, or for an instance.
#pragma once

#include <atomic>
#include <memory>

#include "serving/core/request.h"
#include "serving/core/response_sender.h"
#include "serving/sequences/sequence_states.h"

namespace inflight::serving {

// Of the requests of a sequence from one START to the next: one that was cancelled before it ran
// takes those behind it along, and the sequence ends.
struct SequenceFate {
  std::atomic<bool> is_cancelled = false;
};

struct QueuedRequest {
  Request request;
  std::shared_ptr<ResponseSender> sender;
  std::shared_ptr<SequenceStates::Values> states;  // null: its model keeps none
  std::shared_ptr<SequenceFate> fate;              // null: it is of no sequence
  int slot = 0;                                    // of its sequence, in its instance
};

}  // namespace inflight::serving
