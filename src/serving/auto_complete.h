// SPDX-License-Identifier: Apache-2.0
// What a configuration leaves open because the model's name or its back-end says it
// (spec/triton-protocol.md 3.3): of a model called `<n>.<back-end>` the back-end, of the back-end
// `tensorrtllm` the tensors, those of the 0.11 release, and the engine's batch size.
#pragma once

#include <string>

#include "inflight/status.h"
#include "serving/model_config.h"

namespace inflight::serving {

// Whether a model of this name needs no configuration at all.
bool NeedsNoConfig(const std::string& name);

// kInvalidArgument: no back-end is given, and the name has none either.
Status AutoComplete(const std::string& name, ParsedModelConfig& parsed);

}  // namespace inflight::serving
