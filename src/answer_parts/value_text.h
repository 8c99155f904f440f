// SPDX-License-Identifier: Apache-2.0
// Values of arguments that models do not write as JSON, as JSON.
#pragma once

#include <string>
#include <string_view>

namespace inflight::answer_parts {

// What stands between the quotes of a JSON text; piece by piece the same as at once.
std::string EscapedText(std::string_view text);

// A value as it is where it is JSON, Python's True, False and None as JSON's, and else a text.
std::string ValueOf(std::string_view word);

}  // namespace inflight::answer_parts
