// SPDX-License-Identifier: Apache-2.0
// What a configuration leaves open because the model's file, its name or its back-end says it
// (docs/reference/repositories.md): the back-end by the file in the first version's directory
// (`model.py` is python's), else of a model called `<n>.<back-end>`; of the back-end `tensorrtllm`
// the tensors, those of the 0.11 release, and the engine's batch size.
#pragma once

#include <filesystem>
#include <string>

#include "inflight/status.h"
#include "serving/configuration/model_config.h"

namespace inflight::serving {

// Whether a model of this name needs no configuration at all.
bool NeedsNoConfig(const std::string& name);

// `dir` is the model's. kInvalidArgument: nothing says the back-end.
Status AutoComplete(const std::string& name, const std::filesystem::path& dir,
                    ParsedModelConfig& parsed);

}  // namespace inflight::serving
