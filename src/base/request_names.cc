// SPDX-License-Identifier: Apache-2.0
// What logs, metrics and answers call the states of a request.
#include "inflight/request.h"
#include "inflight/request_stats.h"

namespace inflight {

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNotFinished:
      return "not_finished";
    case FinishReason::kEndId:
      return "end_id";
    case FinishReason::kStopWords:
      return "stop_words";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kTimedOut:
      return "timed_out";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "not_finished";
}

const char* RequestStageName(RequestStage stage) {
  switch (stage) {
    case RequestStage::kQueued:
      return "QUEUED";
    case RequestStage::kEncoderInProgress:
      return "ENCODER_IN_PROGRESS";
    case RequestStage::kContextInProgress:
      return "CONTEXT_IN_PROGRESS";
    case RequestStage::kGenerationInProgress:
      return "GENERATION_IN_PROGRESS";
    case RequestStage::kGenerationComplete:
      return "GENERATION_COMPLETE";
  }
  return "QUEUED";
}

}  // namespace inflight
