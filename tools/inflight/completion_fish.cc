// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion.h"

namespace inflight::tool {
namespace {

std::string FishQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

}  // namespace

std::string FishCompletion(const std::vector<CompletedCommand>& commands) {
  std::string names;
  std::string of_bench;
  std::string benches;
  std::string rows;
  for (const CompletedCommand& command : commands) {
    const size_t space = command.name.find(' ');
    const bool is_of_bench = space != std::string::npos;
    if (is_of_bench) benches += command.name.substr(space);
    std::string& table = is_of_bench ? of_bench : names;
    table += fmt::format("complete -c inflight -n '__inflight_is {}' -f -a {} -d {}\n",
                         is_of_bench ? "bench" : "", command.name.substr(space + 1),
                         FishQuoted(command.summary));
    const std::string when =
        fmt::format("complete -c inflight -n '__inflight_in {}'",
                    is_of_bench ? fmt::format("\"{}\"", command.name) : command.name);
    for (const CompletedOption& option : command.options) {
      std::string value;
      if (!option.choices.empty())
        value = fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
      else if (!option.is_switch)
        value = " -r";
      rows += fmt::format("{} -l {}{} -d {}\n", when, option.flag.substr(2), value,
                          FishQuoted(option.meaning));
    }
    if (!command.words.empty())
      rows += fmt::format("{} -f -a '{}'\n", when, fmt::join(command.words, " "));
  }
  return fmt::format(
      "# Completion of inflight for fish, made by `inflight completion fish`.\n"
      "set -g __inflight_benches{}\n"
      "# Whether the words before the cursor are `inflight` and these alone.\n"
      "function __inflight_is\n"
      "  set -l words (commandline -opc)\n"
      "  test \"$words[2..-1]\" = \"$argv\"\n"
      "end\n"
      "# Whether they begin with this command, and with none of whose name it is the beginning.\n"
      "function __inflight_in\n"
      "  set -l words (commandline -opc)\n"
      "  set -l command \"$words[2]\"\n"
      "  if test (count $words) -gt 2; and test \"$command\" = bench\n"
      "    contains -- $words[3] $__inflight_benches; and set command \"bench $words[3]\"\n"
      "  end\n"
      "  test \"$command\" = \"$argv\"\n"
      "end\n"
      "complete -c inflight -e\n"
      "{}{}{}",
      benches, names, of_bench, rows);
}

}  // namespace inflight::tool
