// SPDX-License-Identifier: Apache-2.0
#include "inflight/status.h"

#include "inflight/request.h"
#include "inflight/request_stats.h"

namespace inflight {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kUnknown:
      return "UNKNOWN";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kAborted:
      return "ABORTED";
    case StatusCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kInternal:
      return "INTERNAL";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
    case StatusCode::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  return std::string(StatusCodeName(code_)) + ": " + message_;
}

Status Status::WithPrefix(std::string_view prefix) const {
  if (ok()) return *this;
  return {code_, std::string(prefix) + ": " + message_};
}

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
