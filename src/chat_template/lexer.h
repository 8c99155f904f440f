// SPDX-License-Identifier: Apache-2.0
// Template text -> tokens, with white space controlled as transformers sets Jinja up: trim_blocks,
// lstrip_blocks, one newline at the end of the template dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::chat_template {

struct Token {
  enum class Kind {
    kData,        // text between tags
    kBlockBegin,  // {%
    kBlockEnd,
    kVariableBegin,  // {{
    kVariableEnd,
    kName,
    kString,  // text: unescaped
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind;
  std::string text;
  int line;  // from 1
};

// kInvalidArgument: "line N: ...". The last token is kEnd.
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace inflight::chat_template
