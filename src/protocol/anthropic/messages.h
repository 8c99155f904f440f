// SPDX-License-Identifier: Apache-2.0
// The routes of Anthropic's API (docs/reference/protocol/anthropic.md), which the handler of
// OpenAI's serves beside its own.
#pragma once

#include <span>

#include "protocol/openai/openai_handler.h"

namespace inflight::anthropic {

std::span<const openai::Route> Routes();

}  // namespace inflight::anthropic
