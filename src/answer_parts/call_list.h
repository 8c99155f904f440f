// SPDX-License-Identifier: Apache-2.0
// Calls as the elements of a JSON array: [{"name": ..., "arguments": ...}, ...]; one object may
// stand without the brackets.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "answer_parts/json_call.h"

namespace inflight::answer_parts {

class CallList {
 public:
  enum class Step {
    kMore,
    kDone,        // the closing bracket
    kDoneBefore,  // this byte is not of the list
    kBroken,      // the last arguments were no JSON; what follows belongs to them
  };

  // `marker` stood before it, and is told with what turns out to be no call.
  CallList(const FunctionNames& names, std::string_view marker) : names_(names), marker_(marker) {}

  Step Add(char c, Parts& out);
  void Finish(Parts& out) const;  // the text ended

 private:
  enum class State { kBegin, kElement, kCall, kComma };

  Step AddOfCall(char c, Parts& out);
  Step EndBefore(Parts& out) const;

  const FunctionNames& names_;
  const std::string_view marker_;
  State state_ = State::kBegin;
  bool is_array_ = false;
  std::string text_;  // outside calls, since the last one
  std::optional<JsonCall> call_;
};

}  // namespace inflight::answer_parts
