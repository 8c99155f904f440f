// SPDX-License-Identifier: Apache-2.0
// Regular expressions as JSON schemas and clients write them: the part of ECMA-262 and of Python's
// `re` that says which texts match, and means the same in both.
//
// Supported: characters, `.` (all but line ends), classes, \d \D \w \W \s \S (\d and \w are ASCII),
// escapes of characters, groups with or without names, alternatives, * + ? {m} {m,} {m,n}, each
// also lazy, which matches the same texts; ^ and $ at the ends of alternatives outside groups.
// Refused by name: looking around, references, \b \B, flags, atomic groups, possessive quantifiers,
// \p.
#pragma once

#include <functional>
#include <string_view>

#include "grammar/grammar.h"
#include "inflight/status.h"

namespace inflight::grammar {

struct RegexSyntax {
  bool is_search = false;  // a match may stand anywhere in the text; else the text matches whole
  // The node of one character of a set; unset: its UTF-8.
  std::function<NodeId(const CharSet&)> chars = {};
};

// kInvalidArgument: "at byte <place>: <what>".
Result<NodeId> ParseRegex(std::string_view pattern, const RegexSyntax& syntax, Grammar& grammar);

}  // namespace inflight::grammar
