// SPDX-License-Identifier: Apache-2.0
// The formats of strings that JSON Schema names, as regular expressions. Each has a part of what
// its RFC allows: what is written is valid, and not all that is valid is written.
#pragma once

#include <string>
#include <string_view>

namespace inflight::grammar {

// Of the whole string. Empty: no such format.
std::string PatternOfFormat(std::string_view name);

std::string FormatNames();  // "date, date-time, ..."

}  // namespace inflight::grammar
