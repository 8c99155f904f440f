// SPDX-License-Identifier: Apache-2.0
// What a backslash of a regular expression stands for.
#pragma once

#include <string>
#include <string_view>

#include "grammar/char_set.h"
#include "inflight/status.h"

namespace inflight::grammar {

CharSet RegexDigits();
CharSet RegexWordChars();
CharSet RegexBlanks();
CharSet RegexNotLineEnds();  // what `.` matches

// Takes the escape behind a backslash away from `rest`: the characters that it matches. \b is a
// backspace in a class, and refused outside of one. kInvalidArgument says what is not supported.
Result<CharSet> TakeRegexEscape(std::string_view& rest, bool is_in_class);

// Takes `digits` hexadecimal digits away; kNoChar, and nothing is taken, where there are fewer.
uint32_t TakeHex(std::string_view& rest, size_t digits);

}  // namespace inflight::grammar
