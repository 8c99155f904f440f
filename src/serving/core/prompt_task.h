// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace inflight::serving {

// The request parameter that names one of the server's prompt tables
// (docs/reference/prompt-tuning.md). What it stands for may change while the server runs, so that
// no response cache answers such a request.
inline constexpr std::string_view kPromptTask = "prompt_task";

}  // namespace inflight::serving
