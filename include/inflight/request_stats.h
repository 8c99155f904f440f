// SPDX-License-Identifier: Apache-2.0
// Where each request stood at the end of an iteration: Executor::TakeRequestStats.
//
// Field meanings follow docs/metrics.md, "Requests in the log". Sequences of a request are told
// apart, as they start, pause and end each for itself; the beams of a search are one sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "inflight/request.h"

namespace inflight {

enum class RequestStage : uint8_t {
  kQueued = 0,
  kEncoderInProgress = 1,  // of models with an encoder, which are not served
  kContextInProgress = 2,  // prefill; also while paused, since a resume begins with one
  kGenerationInProgress = 3,
  kGenerationComplete = 4,  // for whatever reason; the last that is heard of it
};

const char* RequestStageName(RequestStage stage);  // "QUEUED", "ENCODER_IN_PROGRESS", ...

struct RequestStats {
  RequestId id = 0;
  int sequence_index = 0;  // which of the request's sequences
  RequestStage stage = RequestStage::kQueued;
  // Tokens of the prompt whose K and V were computed or reused; after a resume the tokens generated
  // before it count as prompt. 0 while paused.
  int context_prefill_position = 0;
  // So far, without the end id; of a beam search the steps since it began.
  int num_generated_tokens = 0;
  // By iterations that generated any: above 1 where a row may yield several.
  float avg_num_decoded_tokens_per_iter = 0;
  bool scheduled = false;  // it had a row in this iteration
  bool paused = false;     // it ran, and gave up its KV blocks until there is room again
  // KV blocks since it was queued: total = new + reused. Missed are full blocks of the prompt that
  // were not found. Over all requests they add up to the counters of ExecutorStats.
  int64_t kv_blocks_alloc_total = 0, kv_blocks_alloc_new = 0;
  int64_t kv_blocks_reused = 0, kv_blocks_missed = 0;
};

struct RequestStatsPerIteration {
  int64_t iter = 0;                    // ExecutorStats::num_steps
  std::vector<RequestStats> requests;  // by id and sequence
};

}  // namespace inflight
