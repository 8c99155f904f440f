// SPDX-License-Identifier: Apache-2.0
// What lies where in a model repository: models, versions, engines.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "model_config.pb.h"

namespace inflight::serving {

bool Exists(const std::filesystem::path& path);

std::vector<std::filesystem::path> Subdirectories(const std::filesystem::path& dir);  // sorted

// Versions of the model in `dir` that its version policy serves, ascending. Version directories are
// positive integers without a leading zero.
std::vector<std::string> SelectVersions(const ::inference::ModelConfig& config,
                                        const std::filesystem::path& dir);

// `dir`, or the engine in it when it holds none itself and exactly one sub-directory does.
std::filesystem::path ResolveEngineDir(const std::filesystem::path& dir);

}  // namespace inflight::serving
