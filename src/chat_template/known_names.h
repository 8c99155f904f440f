// SPDX-License-Identifier: Apache-2.0
// Which filters and tests a template may name: all that are supported, and others where an `if`
// decides whether they are reached, as Jinja has it; there they fail when they are.
#pragma once

#include "chat_template/syntax.h"
#include "inflight/status.h"

namespace inflight::chat_template {

// kUnimplemented: "line N: the filter 'x' is not supported; supported are …", of the first one.
Status CheckNames(const Body& body);

}  // namespace inflight::chat_template
