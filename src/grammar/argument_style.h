// SPDX-License-Identifier: Apache-2.0
// How models write the arguments of a call, which are an object of JSON for those who read them
// (docs/reference/structured-output.md, "Tagged").
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "grammar/json_text.h"
#include "inflight/status.h"

namespace inflight::grammar {

struct ArgumentStyle {
  // Of members that stand by themselves, without the brackets of an object.
  struct Members {
    std::string before_name, behind_name, behind_value, between;
    bool have_bare_names = false;  // else any without line ends and >

    // Whether a reader finds the name again.
    bool MayName(std::string_view name) const;
  };

  ValueStyle values = {};
  std::optional<Members> members = {};  // none: arguments are an object
  // Members whose values are strings and stand as they are, without quotes.
  std::set<std::string, std::less<>> texts = {};
};

// kInvalidArgument lists the names.
Result<ArgumentStyle> ArgumentStyleNamed(std::string_view name);

}  // namespace inflight::grammar
