// SPDX-License-Identifier: Apache-2.0
// Template text -> tree. What is not supported is refused here, by name and line, not while
// rendering.
#pragma once

#include <string_view>

#include "chat_template/syntax.h"

namespace inflight::chat_template {

constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

// kInvalidArgument for faulty syntax, kUnimplemented for what Jinja has and this has not:
// "line N: ...".
Result<Body> Parse(std::string_view source);

}  // namespace inflight::chat_template
