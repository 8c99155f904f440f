// SPDX-License-Identifier: Apache-2.0
// What an answer in a model's format must be, as a guide's text
// (docs/reference/structured-output.md, "Tagged"): calls as the format writes them, whose arguments
// fit the schemas of their functions, or a last message that is guided.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer_parts/call_formats.h"
#include "inflight/guide.h"
#include "inflight/status.h"

namespace inflight::answer_parts {

struct GuidedFunction {
  std::string_view name;
  std::string_view schema;                // a JSON object; empty: arguments may be any
  const TextParameters* texts = nullptr;  // of its parameters; null: none
};

struct CallGuideOptions {
  bool must_call = true;  // else text may stand in place of calls and around them
  size_t max_calls = 64;
  // With must_call: what may stand in place of the calls. No kTagged, and it begins at once.
  const GuideSpec* answer = nullptr;
};

// kTagged of GuideSpec. `functions` are those that may be called. kInvalidArgument: the text of the
// answer's guide is no JSON, which it has to be.
Result<std::string> CallGuideText(const CallFormat& format,
                                  std::span<const GuidedFunction> functions,
                                  const CallGuideOptions& options);

// How the first call of a guide with must_call begins, one text for each function.
std::vector<std::string> BeginsOfCalls(const CallFormat& format, const FunctionNames& names);

// kTagged of GuideSpec: the last message of an answer in channels is what `guide` says, and nothing
// but reasoning stands before it; `reasons` false: nothing does. The format is one that has
// channels, and `guide`, which is no kTagged, begins at once. kInvalidArgument: its text is no
// JSON, which it has to be.
Result<std::string> LastMessageGuideText(const CallFormat& format, const GuideSpec& guide,
                                         bool reasons);

}  // namespace inflight::answer_parts
