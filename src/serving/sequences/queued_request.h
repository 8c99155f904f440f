// SPDX-License-Identifier: Apache-2.0
// A request that waits: for a slot of its sequence, or for an instance.
#pragma once

#include <memory>

#include "serving/core/request.h"
#include "serving/core/response_sender.h"
#include "serving/sequences/sequence_states.h"

namespace inflight::serving {

struct QueuedRequest {
  Request request;
  std::shared_ptr<ResponseSender> sender;
  std::shared_ptr<SequenceStates::Values> states;  // null: its model keeps none
};

}  // namespace inflight::serving
