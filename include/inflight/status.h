// SPDX-License-Identifier: Apache-2.0
// Status and Result<T>: how every fallible function of Inflight reports failure.
//
// Codes are the gRPC canonical codes with their numbers, so that the front ends map them by one
// table. A message names the field, the value, the bound and the remedy; it is shown to clients as
// it is. Messages are for people: what a program decides by is the code, the reason and the field.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace inflight {

enum class StatusCode {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

std::string_view StatusCodeName(StatusCode code);  // "INVALID_ARGUMENT"

// What happened, where callers tell apart what one code covers.
enum class Reason : uint8_t {
  kNone,         // the code says it all
  kOutOfMemory,  // of the host, of a device, or of the KV cache
  kQueueFull,    // as many requests wait as may; the same request may be accepted later
  kOverLimit,    // of what this client may ask for; others are served
  kPromptTooLong,
  kLoading,  // the server has not loaded its models yet; the same request may be accepted later
};

// OK takes two words and no allocation; an error allocates, and so does its copy.
class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message);
  Status(const Status& other) : code_(other.code_), details_(Copy(other.details_)) {}
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  static Status Ok() { return {}; }
  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const;
  Reason reason() const { return details_ == nullptr ? Reason::kNone : details_->reason; }
  // The field of the request, the option or the key at fault, by the name that the message begins
  // with; empty where no single one is.
  const std::string& field() const;
  // The same request may be accepted after so many seconds; 0 where nobody knows.
  int64_t retry_after_s() const { return details_ == nullptr ? 0 : details_->retry_after_s; }
  std::string ToString() const;  // "OK" or "CODE: message"

  // The same status with one part replaced; OK stays OK.
  Status WithReason(Reason reason) const;
  Status WithField(std::string_view field) const;
  Status WithRetryAfter(int64_t seconds) const;
  Status WithMessage(std::string message) const;
  // With "`prefix`: " before its message.
  Status WithPrefix(std::string_view prefix) const;

  friend bool operator==(const Status& a, const Status& b);

 private:
  struct Details {
    std::string message;
    std::string field;
    Reason reason = Reason::kNone;
    int64_t retry_after_s = 0;

    bool operator==(const Details&) const = default;
  };
  using DetailsPtr = std::unique_ptr<Details>;

  static DetailsPtr Copy(const DetailsPtr& from) {
    return from == nullptr ? nullptr : std::make_unique<Details>(*from);
  }

  StatusCode code_ = StatusCode::kOk;
  DetailsPtr details_;  // null: OK, or moved from
};

inline Status InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }
inline Status Unimplemented(std::string m) { return {StatusCode::kUnimplemented, std::move(m)}; }
inline Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
inline Status ResourceExhausted(std::string m) {
  return {StatusCode::kResourceExhausted, std::move(m)};
}
inline Status Cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
inline Status DeadlineExceeded(std::string m) {
  return {StatusCode::kDeadlineExceeded, std::move(m)};
}
inline Status FailedPrecondition(std::string m) {
  return {StatusCode::kFailedPrecondition, std::move(m)};
}
inline Status AlreadyExists(std::string m) { return {StatusCode::kAlreadyExists, std::move(m)}; }
inline Status DataLoss(std::string m) { return {StatusCode::kDataLoss, std::move(m)}; }

// kResourceExhausted for want of memory.
Status OutOfMemory(std::string message);
// The same of the host's memory: no room for "the response".
Status NoMemoryFor(std::string_view what);
// "`field`: `what`", about that field, option or key: InvalidArgument("top_k", "got -1, must ...").
Status InvalidArgument(std::string_view field, std::string_view what);
Status Unimplemented(std::string_view field, std::string_view what);
// kInternal with what `error` says after "`what`: "; of a bad_alloc kResourceExhausted, with the
// reason kOutOfMemory.
Status Caught(std::string_view what, const std::exception& error);

// A value or the status that says why there is none. Converts from both; `status()` of a value is
// OK.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace inflight
