// SPDX-License-Identifier: Apache-2.0
// A SplitPattern that PCRE2 matches (JIT where the machine has it).
#pragma once

#include <memory>
#include <string>

#include "tokenizer/split_pattern.h"

namespace inflight::tokenizer {

// `pattern` is in PCRE2's syntax; matching is on characters, with Unicode properties, and ^ and $
// match at every line, as Ruby has it.
Result<std::shared_ptr<const SplitPattern>> CompilePcre2(const std::string& pattern);

}  // namespace inflight::tokenizer
