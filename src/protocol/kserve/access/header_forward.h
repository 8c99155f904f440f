// SPDX-License-Identifier: Apache-2.0
// Which headers of a request the model sees, as parameters of their names
// (docs/reference/protocol/common.md, "Header forwarding").
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "inflight/status.h"

namespace inflight::kserve {

// A regular expression that is looked for anywhere in a header's name, without regard to case
// unless it says (?-i). Threads: Matches is thread-safe.
class HeaderForward {
 public:
  HeaderForward() = default;  // matches nothing
  // "" matches nothing. kInvalidArgument says what is wrong with the pattern.
  static Result<HeaderForward> Make(const std::string& pattern);

  // kInvalidArgument where it matches a name that the protocol itself gives a meaning.
  Result<bool> Matches(std::string_view name) const;
  bool empty() const { return pattern_ == nullptr; }

 private:
  class Pattern;
  std::shared_ptr<const Pattern> pattern_;
};

}  // namespace inflight::kserve
