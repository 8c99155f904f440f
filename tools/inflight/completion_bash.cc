// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion.h"

namespace inflight::tool {
namespace {

// One branch of the script: the flags, and what follows those that take a value.
std::string CommandCase(const CompletedCommand& command) {
  std::string flags;
  std::string listed;    // flags with choices
  std::string unlisted;  // flags whose value is a number, a text or a file
  for (const CompletedOption& option : command.options) {
    flags += (flags.empty() ? "" : " ") + option.flag;
    if (option.is_switch) continue;
    if (option.choices.empty())
      unlisted += (unlisted.empty() ? "" : "|") + option.flag;
    else
      listed += fmt::format("        {}) choices=\"{}\" ;;\n", option.flag,
                            fmt::join(option.choices, " "));
  }
  std::string words;
  if (!command.words.empty())
    words = fmt::format("      choices=\"{}\"\n", fmt::join(command.words, " "));
  return fmt::format(
      "    \"{}\")\n"
      "      flags=\"{}\"\n"
      "{}"
      "      case $previous in\n"
      "{}"
      "        {}) return ;;\n"
      "      esac ;;\n",
      command.name, flags, words, listed, unlisted);
}

}  // namespace

std::string BashCompletion(const std::vector<CompletedCommand>& commands) {
  std::string names;
  std::string cases;
  std::vector<std::string> quoted_pairs;  // "bench load"
  std::string of_bench;
  for (const CompletedCommand& command : commands) {
    const size_t space = command.name.find(' ');
    if (space == std::string::npos) {
      names += command.name + ' ';
    } else {
      quoted_pairs.push_back('"' + command.name + '"');
      of_bench += command.name.substr(space + 1) + ' ';
    }
    cases += CommandCase(command);
  }
  // An empty COMPREPLY leaves the word to bash, which completes it as a file.
  return fmt::format(
      "# Completion of inflight for bash, made by `inflight completion bash`.\n"
      "_inflight() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  local command=${{COMP_WORDS[1]}} flags= choices=\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W \"{}--help --version\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  if ((COMP_CWORD > 2)); then\n"
      "    case \"$command ${{COMP_WORDS[2]}}\" in\n"
      "      {}) command+=\" ${{COMP_WORDS[2]}}\" ;;\n"
      "    esac\n"
      "  fi\n"
      "  case $command in\n"
      "{}"
      "  esac\n"
      "  if [[ $word == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n"
      "  elif [[ -n $choices ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$choices\" -- \"$word\"))\n"
      "  elif [[ $command == bench && COMP_CWORD -eq 2 ]]; then\n"
      "    COMPREPLY=($(compgen -W \"{}\" -- \"$word\") $(compgen -d -- \"$word\"))\n"
      "  fi\n"
      "}}\n"
      "complete -o bashdefault -o default -F _inflight inflight\n",
      names, fmt::join(quoted_pairs, "|"), cases, of_bench);
}

}  // namespace inflight::tool
