// SPDX-License-Identifier: Apache-2.0
#include "inflight/status.h"

#include <new>

namespace inflight {
namespace {

const std::string& EmptyString() {
  static const std::string empty;
  return empty;
}

std::string AboutField(std::string_view field, std::string_view what) {
  return std::string(field).append(": ").append(what);
}

}  // namespace

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

Status::Status(StatusCode code, std::string message)
    : code_(code),
      details_(code == StatusCode::kOk ? nullptr
                                       : new Details{.message = std::move(message), .field = {}}) {}

Status& Status::operator=(const Status& other) {
  if (this == &other) return *this;
  code_ = other.code_;
  details_ = Copy(other.details_);
  return *this;
}

const std::string& Status::message() const {
  return details_ == nullptr ? EmptyString() : details_->message;
}

const std::string& Status::field() const {
  return details_ == nullptr ? EmptyString() : details_->field;
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  return std::string(StatusCodeName(code_)) + ": " + message();
}

Status Status::WithReason(Reason reason) const {
  Status changed = *this;
  if (changed.details_ != nullptr) changed.details_->reason = reason;
  return changed;
}

Status Status::WithField(std::string_view field) const {
  Status changed = *this;
  if (changed.details_ != nullptr) changed.details_->field = field;
  return changed;
}

Status Status::WithRetryAfter(int64_t seconds) const {
  Status changed = *this;
  if (changed.details_ != nullptr) changed.details_->retry_after_s = seconds;
  return changed;
}

Status Status::WithMessage(std::string message) const {
  Status changed = *this;
  if (changed.details_ != nullptr) changed.details_->message = std::move(message);
  return changed;
}

Status Status::WithPrefix(std::string_view prefix) const {
  return ok() ? *this : WithMessage(AboutField(prefix, message()));
}

bool operator==(const Status& a, const Status& b) {
  if (a.code_ != b.code_) return false;
  if (a.details_ == nullptr || b.details_ == nullptr) return a.details_ == b.details_;
  return *a.details_ == *b.details_;
}

Status OutOfMemory(std::string message) {
  return ResourceExhausted(std::move(message)).WithReason(Reason::kOutOfMemory);
}

Status NoMemoryFor(std::string_view what) {
  return OutOfMemory(
      std::string("the server has no memory left for ").append(what).append("; try again later"));
}

Status InvalidArgument(std::string_view field, std::string_view what) {
  return InvalidArgument(AboutField(field, what)).WithField(field);
}

Status Unimplemented(std::string_view field, std::string_view what) {
  return Unimplemented(AboutField(field, what)).WithField(field);
}

Status Caught(std::string_view what, const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return NoMemoryFor("it").WithPrefix(what);
  }
  return Internal(AboutField(what, error.what()));
}

}  // namespace inflight
