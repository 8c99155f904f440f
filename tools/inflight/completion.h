// SPDX-License-Identifier: Apache-2.0
// Completion of the command line for shells, from the schemas that parse it.
#pragma once

#include <string>
#include <vector>

#include "config/schema.h"

namespace inflight::tool {

struct CommandOptions {
  std::string name;  // "run"; "bench load" is a command of its own
  std::vector<config::OptionInfo> options;
};

// A script for bash: `source <(inflight completion bash)`.
std::string BashCompletion(const std::vector<CommandOptions>& commands);

}  // namespace inflight::tool
