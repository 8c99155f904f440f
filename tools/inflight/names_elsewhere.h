// SPDX-License-Identifier: Apache-2.0
// What vLLM, llama-server and Ollama call things that `inflight serve` calls otherwise, or does not
// have: one table, from which an unknown option is answered with ours. Options that have the same
// meaning under both names are aliases, in serve_options.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace inflight::tool {

// Of an option, with its dashes, "_" or "-" inside.
std::optional<std::string> OptionElsewhere(std::string_view flag);
// Of a command: "pull".
std::optional<std::string> CommandElsewhere(std::string_view name);

// Says of each variable of the environment that other servers read and this one does not what to
// give instead.
void LogVariablesElsewhere();

}  // namespace inflight::tool
