// SPDX-License-Identifier: Apache-2.0
// Reads JSON as Triton does (docs/reference/protocol/http.md): its messages and byte offsets, NaN
// and Infinity, invalid UTF-8 passed through, no depth limit, the first of duplicate members.
//
// Parse checks the whole text once and builds nothing; a Value is a position in it that is decoded
// when asked. So a request costs no memory beyond its own text, however it is nested, and the
// numbers of a tensor go from the text into the tensor in one pass. No library that we know accepts
// and says what the contract demands: simdjson refuses NaN, deep nesting and invalid UTF-8 and
// gives no offsets; a tree costs 16 bytes for each number of two.
//
// Threads: none of its own; Values are views, the text must outlive them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "inflight/status.h"

namespace inflight::json {

class Value {
 public:
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  // kInternal: "failed to parse the request JSON buffer: <what> at <byte>".
  static Result<Value> Parse(std::string_view text);

  Kind kind() const;
  bool IsInteger() const;  // a number written without fraction and exponent

  // kInternal: "attempt to access JSON non-string as string" and alike.
  Result<std::string> AsString() const;
  Result<bool> AsBool() const;
  Result<int64_t> AsInt() const;    // integers within int64
  Result<uint64_t> AsUint() const;  // integers within uint64
  Result<double> AsDouble() const;  // any number

  // The first member of each name, in one pass; all unset when this is no object.
  template <size_t N>
  std::array<std::optional<Value>, N> Pick(const std::array<std::string_view, N>& names) const {
    std::array<std::optional<Value>, N> found;
    PickInto(names.data(), found.data(), N);
    return found;
  }

  // In document order; a status that is not OK ends the walk and is returned.
  // kInternal when this is no object ("attempt to get members for non-object") or no array.
  Status ForEachMember(
      const std::function<Status(std::string_view name, Value value)>& visit) const;
  Status ForEachElement(const std::function<Status(Value element)>& visit) const;

  // Elements of an array without those inside its elements; kInternal when this is no array.
  Result<size_t> NumElements() const;

  // All scalars of an array and the arrays in it, flattened (objects are visited as they are).
  // kInvalidArgument when arrays nest deeper than `max_depth`.
  Status ForEachScalar(int max_depth, const std::function<Status(Value scalar)>& visit) const;

  const char* place() const { return begin_; }  // in the text, of its first character
  size_t text_bytes() const;                    // of its text, an upper bound of what it decodes to
  std::string_view text() const { return {begin_, text_bytes()}; }  // as it was written

 private:
  Value(const char* begin, const char* end) : begin_(begin), end_(end) {}
  void PickInto(const std::string_view* names, std::optional<Value>* found, size_t count) const;

  const char* begin_;  // first character of the value
  const char* end_;    // of the whole text
};

}  // namespace inflight::json
