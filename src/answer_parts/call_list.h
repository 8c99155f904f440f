// SPDX-License-Identifier: Apache-2.0
// Calls as the elements of a JSON array: [{"name": ..., "arguments": ...}, ...]; one object may
// stand without the brackets.
#pragma once

#include <optional>
#include <string>

#include "answer_parts/json_call.h"

namespace inflight::answer_parts {

class CallList {
 public:
  enum class Step {
    kMore,
    kDone,        // the closing bracket
    kDoneBefore,  // the list was over before this byte
    kNone,        // `untold` is no call, nor what follows it
    kBroken,      // the last arguments were no JSON; what follows belongs to them
  };

  explicit CallList(const FunctionNames& names) : names_(names) {}

  Step Add(char c, Parts& out);

  // What was added and is in no part: all of it up to the first call, or behind the last.
  std::string untold() const;

 private:
  enum class State { kBegin, kElement, kCall, kComma };

  Step AddOfCall(char c, Parts& out);

  const FunctionNames& names_;
  State state_ = State::kBegin;
  bool is_array_ = false;
  std::string text_;  // outside calls, since the last one
  std::optional<JsonCall> call_;
};

}  // namespace inflight::answer_parts
