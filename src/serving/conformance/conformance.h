// SPDX-License-Identifier: Apache-2.0
// Backend `conformance`: models without weights, whose answers follow from their inputs, for
// clients, load generators and the tests that compare us with recorded exchanges
// (docs/reference/repositories.md). The configuration's parameter `kind` names the behaviour.
#pragma once

#include <memory>

#include "inflight/status.h"
#include "model_config.pb.h"
#include "serving/core/executable.h"

namespace inflight::serving {

// kInvalidArgument for an unknown kind. The parameters `load_error` and `load_error_code` make the
// load fail with that text and class, to show what a failing model looks like.
Result<std::unique_ptr<Executable>> MakeConformance(const ::inference::ModelConfig& config);

// --- kinds that answer with several responses (conformance_streams.cc) ---

// For each element i of IN: waits DELAY[i] ms, answers OUT = IN[i] and IDX = i. Execute itself
// returns after WAIT ms.
std::unique_ptr<Executable> MakeRepeat();
// The words of text_input, one response each where `stream` is true.
std::unique_ptr<Executable> MakeWords(const ::inference::ModelConfig& config);

}  // namespace inflight::serving
