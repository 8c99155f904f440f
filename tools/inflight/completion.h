// SPDX-License-Identifier: Apache-2.0
// Completion of the command line for shells, from the schemas that parse it.
#pragma once

#include <string>
#include <vector>

namespace inflight::tool {

struct CompletedOption {
  std::string flag;
  std::string meaning;  // a sentence
  bool is_switch = false;
  std::vector<std::string> choices;  // values that can be listed; none: a number, a text or a file
};

struct CompletedCommand {
  std::string name;  // "run"; "bench load" is a command of its own
  std::string summary;
  std::vector<CompletedOption> options;  // those that have an effect, --config and --help
  std::vector<std::string> words;        // what may stand as its argument, where that is no file
};

// Scripts. bash: `source <(inflight completion bash)`; zsh: a file _inflight of its $fpath, or
// sourced after compinit; fish: `inflight completion fish | source`.
std::string BashCompletion(const std::vector<CompletedCommand>& commands);
std::string ZshCompletion(const std::vector<CompletedCommand>& commands);
std::string FishCompletion(const std::vector<CompletedCommand>& commands);

}  // namespace inflight::tool
