// SPDX-License-Identifier: Apache-2.0
// Where the models of a server lie, as far as files say it before anything is loaded.
#pragma once

#include <filesystem>
#include <vector>

#include "serving/repository/server_options.h"

namespace inflight::serving {

// The model directories of `options`, and the engines that the LLMs of local repositories lead to.
// What cannot be read is left out: whoever loads it says so. Object stores are not asked.
std::vector<std::filesystem::path> EnginePlaces(const ServerOptions& options);

}  // namespace inflight::serving
