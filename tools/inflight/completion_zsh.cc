// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion.h"

namespace inflight::tool {
namespace {

// `text` between single quotes, with a backslash before what _arguments or _describe would read.
std::string ZshQuoted(const std::string& text, std::string_view special) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
      continue;
    }
    if (c == '\\' || special.find(c) != std::string_view::npos) quoted += '\\';
    quoted += c;
  }
  return quoted;
}

// "'*--dtype=[Element type]:value:(auto float32)'": given as `--dtype VALUE` or `--dtype=VALUE`.
std::string Spec(const CompletedOption& option) {
  std::string value;
  if (!option.is_switch) {
    value = option.choices.empty() ? ":value:_files"
                                   : fmt::format(":value:({})", fmt::join(option.choices, " "));
  }
  return fmt::format("'*{}{}[{}]{}'", option.flag, option.is_switch ? "" : "=",
                     ZshQuoted(option.meaning, "[]:"), value);
}

std::string ZshCase(const CompletedCommand& command) {
  std::string specs;
  for (const CompletedOption& option : command.options) specs += " \\\n        " + Spec(option);
  const std::string rest =
      command.words.empty() ? "_files" : fmt::format("({})", fmt::join(command.words, " "));
  return fmt::format("    '{}')\n      _arguments{} \\\n        '*:argument:{}' ;;\n", command.name,
                     specs, rest);
}

}  // namespace

std::string ZshCompletion(const std::vector<CompletedCommand>& commands) {
  std::string names;
  std::string cases;
  std::vector<std::string> pairs;
  std::string of_bench;
  for (const CompletedCommand& command : commands) {
    const size_t space = command.name.find(' ');
    const std::string entry =
        fmt::format("'{}:{}'", command.name.substr(space + 1), ZshQuoted(command.summary, ":"));
    if (space == std::string::npos) {
      names += "    " + entry + "\n";
    } else {
      pairs.push_back("'" + command.name + "'");
      of_bench += "    " + entry + "\n";
    }
    cases += ZshCase(command);
  }
  return fmt::format(
      "#compdef inflight\n"
      "# Completion of inflight for zsh, made by `inflight completion zsh`.\n"
      "_inflight() {{\n"
      "  local command=$words[2]\n"
      "  local -a commands benches\n"
      "  commands=(\n"
      "{}"
      "  )\n"
      "  benches=(\n"
      "{}"
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  if [[ $command == bench && CURRENT -eq 3 && $words[3] != -* ]]; then\n"
      "    _describe measurement benches\n"
      "    _files -/\n"
      "    return\n"
      "  fi\n"
      "  if (( CURRENT > 3 )); then\n"
      "    case \"$command $words[3]\" in\n"
      "      {}) command+=\" $words[3]\"; shift words; (( CURRENT-- )) ;;\n"
      "    esac\n"
      "  fi\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $command in\n"
      "{}"
      "  esac\n"
      "}}\n"
      "if [[ $funcstack[1] == _inflight ]]; then\n"
      "  _inflight \"$@\"\n"
      "else\n"
      "  compdef _inflight inflight\n"
      "fi\n",
      names, of_bench, fmt::join(pairs, "|"), cases);
}

}  // namespace inflight::tool
